"""Example: headwise distill runs/teacher --train train.en train.de -o distilled.jsonl"""

import argparse

from headwise.cli.corpus_files import corpus_output_option, line_translator, pair_format, write_corpus
from headwise.cli.loading import model_or_ensemble
from headwise.cli.options import corpus_option, decode_options, decode_overrides, ensemble_options, languages_of
from headwise.cli.parallel_texts import training_corpora
from headwise.cli.rules import FlagRule
from headwise.models.translation.distill import distill
from headwise.text.files.corpus import read_pairs

COMMON = (
    *("--train", "--output", "--beam-size", "--n-best", "--interpolate", "--ensemble", "--compute", "--workers"),
    *("--ray", "--device"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    ensemble_options(parser)
    corpus_option(parser)
    corpus_output_option(parser)
    interpolate = (
        "of the --n-best translations, write the one that is closest to the reference, not the most probable one"
    )
    parser.add_argument("--interpolate", action="store_true", help=interpolate)
    n_best = "translations per text: a pair for each, or with --interpolate the candidates to choose from"
    decode_options(parser, without=("draft_length",), n_best=n_best)


def _one_translation(options: argparse.Namespace) -> bool:
    return not options.sample and 1 in (options.n_best, options.beam_size)


RULES = (
    FlagRule(
        ("interpolate",), _one_translation, "chooses among several translations: leave out --n-best 1 and --beam-size 1"
    ),
)


def run(options: argparse.Namespace) -> None:
    """Write a corpus whose targets are the model's translations."""
    as_line = pair_format(options.output)
    model = model_or_ensemble(options)
    corpora = training_corpora("--train", options.train, languages_of(options))
    overrides = decode_overrides(options, model.decode_config)
    if options.interpolate and "n_best" not in overrides:
        overrides["n_best"] = overrides.get("beam_size", model.decode_config.beam_size)
    translate = line_translator(options, model, overrides, options.train)
    pairs = distill(read_pairs(corpora), translate, options.interpolate)
    write_corpus(options.output, as_line, pairs)

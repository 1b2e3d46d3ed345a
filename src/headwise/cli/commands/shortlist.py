"""Example: headwise shortlist runs/ende --train train.en train.de"""

import argparse
import sys

from headwise.cli.loading import translator_of
from headwise.cli.options import TRANSLATION_MODEL, corpus_option, language_options, languages_of, whole_number
from headwise.cli.parallel_texts import training_corpora
from headwise.config.data import TranslationData
from headwise.runtime.checkpoint.sidecar_files import write_shortlist
from headwise.text.files.sources import count_of
from headwise.text.prepared.prepared import prepare
from headwise.text.prepared.shortlist import estimate_shortlist


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=f"{TRANSLATION_MODEL}; the shortlist is saved in its folder")
    corpus_option(parser)
    candidates = "target tokens allowed for each source token (default: %(default)s)"
    parser.add_argument("--candidates", type=whole_number(1), default=50, metavar="N", help=candidates)
    frequent = "number of the most frequent target tokens, which are always allowed (default: %(default)s)"
    parser.add_argument("--frequent", type=whole_number(1), default=200, metavar="N", help=frequent)
    language_options(parser)


def run(options: argparse.Namespace) -> None:
    """Write the shortlist of a model."""
    options.device = "cpu"
    model = translator_of(options)
    tokenizer, data = model.sides, getattr(model.config, "data", TranslationData())
    corpus = prepare(training_corpora("--train", options.train, languages_of(options)), tokenizer, data)
    shortlist = estimate_shortlist(corpus, model.n_pieces, options.candidates, options.frequent)
    path = write_shortlist(model.path, shortlist, tokenizer)
    print(f"{path}: trained on {count_of(len(corpus), 'pair')}; use it with --shortlist", file=sys.stderr)

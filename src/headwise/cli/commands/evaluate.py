"""Example: headwise evaluate runs/ende --source test.en --reference test.de"""

import argparse
import inspect
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwise.cli.files import output
from headwise.cli.loading import model_of, model_or_ensemble, translator_of
from headwise.cli.options import (
    ANY_MODEL,
    DECODING,
    ONE_PROCESS,
    SAMPLING,
    TERMS,
    decode_options,
    decode_overrides,
    document_languages,
    ensemble_option,
    files_option,
    format_option,
    glossary_options,
    language_options,
    languages_of,
    metric_options,
    model_option,
    ray_option,
    source_option,
    target_option,
    window_options,
)
from headwise.cli.parallel_texts import NamedText, parallel_texts, source_text, target_text, texts_to_score
from headwise.cli.rules import FlagRule, in_file, out_file
from headwise.errors import UserError
from headwise.evaluate.alignment import score_alignment
from headwise.evaluate.comet import is_comet
from headwise.evaluate.report import TranslationReport, evaluate_model, evaluate_text, render_report
from headwise.evaluate.tuning import Tuning, tune_length_penalty
from headwise.runtime.checkpoint.hub import folder_of
from headwise.runtime.checkpoint.layout import is_family
from headwise.runtime.checkpoint.model_card import DECODING as DECODING_ROW
from headwise.runtime.checkpoint.model_card import with_row
from headwise.runtime.checkpoint.trained import write_decoding, write_length_penalty
from headwise.text.files.file_checks import PREPARED, TOKENIZED, prepared_texts
from headwise.text.files.lines import READINGS
from headwise.text.files.links import check_links, read_gold, read_links
from headwise.text.files.sources import display_name

LANGUAGE = {"window": "language", "stride": "language", "reading": "masked language"}  # options for such models
IN_MODEL = ""  # `--save` without a file
RULES = (
    FlagRule(("target", "reverse"), lambda o: not o.alignments, "is for --alignments: name gold links"),
    ONE_PROCESS,
    FlagRule(
        (
            "ensemble",
            "reference",
            "against",
            "multi30k",
            "tokenize",
            "tune",
            "save",
            "ray",
            *TERMS,
            *DECODING,
            *LANGUAGE,
        ),
        lambda o: o.alignments,
        "does not go with --alignments, which measures links, not translations",
    ),
    FlagRule(
        (
            "model",
            "ensemble",
            "target",
            "reverse",
            "device",
            "tune",
            "save",
            "ray",
            *TERMS,
            *DECODING,
            *LANGUAGE,
        ),
        lambda o: o.hypothesis,
        "does not go with --hypothesis, which is scored as it is",
    ),
    FlagRule(
        ("source",),
        lambda o: o.hypothesis and (o.alignments or not any(map(is_comet, o.metric))),
        "does not go with --hypothesis, which is scored as it is; only --metric comet reads sources",
    ),
    FlagRule(
        ("against", "multi30k", "length_penalty", "sample", *TERMS, *SAMPLING),
        lambda o: o.tune,
        "does not go with --tune, which compares values of one setting of the beam",
    ),
    FlagRule(("save",), lambda o: o.tune and o.save, "takes no FILE with --tune: the best value is kept in MODEL"),
    FlagRule(
        ("ensemble", *DECODING),
        lambda o: o.tune and o.save is not None,
        "does not go with --save: tune MODEL's own settings",
    ),
    FlagRule(("save",), lambda o: not o.tune and o.save == "", "needs a FILE to keep the translations in"),
)

EVALUATION = {  # parameters of `evaluate` of some models, and the options for them
    **{"language": "source_language", "normalizer": "normalizer"},
    **{"window": "window", "stride": "stride", "reading": "reading"},
}
COMMON = (
    *("--source", "--reference", "--hypothesis", "--against", "--metric", "--format", "--save", "--beam-size"),
    *("--device", "--alignments"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    model_option(parser, ANY_MODEL, needed=False)
    ensemble_option(parser)
    source = (
        "texts to translate, or a file of pairs that has the references, too (.tsv, .po, .tmx, ...). For models of "
    )
    source += "other tasks, a file as for `headwise train --train`: text, .tsv, .csv, ..."
    source_option(parser, source, required=False)
    hypothesis = "score these translations instead of a MODEL's; with --alignments, these word links"
    parser.add_argument("--hypothesis", type=in_file, metavar="FILE", help=hypothesis)
    files_option(parser, "--reference", "reference translations, one file or several: lines of text, or files of pairs")
    against = "second model to compare with, by paired bootstrap; with --hypothesis, a second file of translations"
    parser.add_argument("--against", metavar="MODEL", help=against)
    format_option(parser, "json: one object with all numbers", ("text", "json"))
    metric_options(parser, ("BLEU", "chrF++", "TER"))
    tune = "length_penalty: print the value of this setting that is best on --source; use validation data, no test set"
    parser.add_argument("--tune", choices=["length_penalty"], metavar="NAME", help=tune)
    save = "file to save the translations in; with --tune and without FILE, save the best value in MODEL"
    parser.add_argument("--save", type=out_file, nargs="?", const=IN_MODEL, metavar="FILE", help=save)
    normalizer = "how transcripts are normalized; english also unifies numbers and spellings (default: basic)"
    parser.add_argument("--normalizer", choices=("basic", "english"), help=normalizer)
    window_options(parser)
    reading = "for a masked language model: lines (each is a sequence, such as a protein), blocks (running text) or "
    reading += "auto (default: %(default)s)"
    parser.add_argument("--reading", choices=READINGS, default=READINGS[0], help=reading)
    _alignment_options(parser)
    glossary_options(parser)
    ray_option(parser)
    language_options(parser)
    document_languages(parser)
    decode_options(parser, without=("n_best", "draft_length"))


def _alignment_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("word alignment")
    gold = "correct word links (i-j sure, ipj possible): print the alignment error rate of MODEL on --source and "
    gold += "--target, or of the links in --hypothesis"
    group.add_argument("--alignments", type=in_file, metavar="FILE", help=gold)
    target_option(group, "translations of --source, one per line")
    reverse = "model for the opposite direction; the links of both are combined (grow-diag)"
    group.add_argument("--reverse", metavar="MODEL", help=reverse)


def run(options: argparse.Namespace) -> None:
    """Print scores with everything needed to reproduce them; which scores depends on the model."""
    if options.alignments:
        _evaluate_alignment(options)
        return
    if options.hypothesis:
        _evaluate_hypotheses(options)
        return
    if not (options.model and options.source):
        raise UserError("MODEL and --source are required, or --hypothesis")
    model = model_or_ensemble(options) if options.ensemble else model_of(options)
    hears = getattr(model, "reads", "") == "sound"
    if options.normalizer and not hears:
        raise UserError(f"--normalizer is for transcripts, and {options.model} does not transcribe speech")
    if hasattr(model, "translate") or not hasattr(model, "evaluate"):
        _evaluate_translator(options, model)
        return
    settings = {
        name: getattr(options, option) for name, option in _evaluation_options(model).items() if option in options.flags
    }
    known = ("model", "source", "device", "format", *_evaluation_options(model).values())
    stray = [flag for name, flag in options.flags.items() if name not in known]
    if stray:
        what = LANGUAGE.get(stray[0].removeprefix("--"), "translation")
        raise UserError(f"{stray[0]} is for {what} models; {options.model} needs --source alone")
    report = model.evaluate([options.source], **settings)
    _print(options, report.as_json(), report.render())


def _evaluation_options(model: Any) -> dict[str, str]:
    """The options of this command that `model.evaluate` takes, by the name of its parameter."""
    taken = inspect.signature(model.evaluate).parameters
    return {name: option for name, option in EVALUATION.items() if name in taken}


def _print(options: argparse.Namespace, as_json: Any, text: str) -> None:
    print(json.dumps(as_json, indent=2) if options.format == "json" else text)


def _print_report(options: argparse.Namespace, report: TranslationReport) -> None:
    _print(options, report.as_json(), render_report(report))


def _plain_texts(named: Sequence[NamedText], languages: Sequence[str]) -> list[list[str]]:
    """`parallel_texts`, with a warning for each that is not plain text, for which metrics are meant."""
    columns = parallel_texts(named, languages)
    for text, column in zip(named, columns, strict=True):
        for warning in prepared_texts([(line,) for line in column], "line", PREPARED | TOKENIZED):
            what = f"{text.option} {display_name(text.path)}: {warning}; metrics expect plain text on all sides"
            print(f"headwise: warning: {what}", file=sys.stderr)
    return columns


def _evaluate_hypotheses(options: argparse.Namespace) -> None:
    if not options.reference:
        raise UserError("--reference is required: the file or files to compare translations with")
    sources = [source_text(options.source)] if options.source else []
    named = {"--hypothesis": [options.hypothesis], "--reference": options.reference}
    named["--against"] = [options.against] if options.against else []
    files = [target_text(path, option) for option, paths in named.items() for path in paths]
    hypotheses, *texts = _plain_texts([*files, *sources], options.languages)
    settings = {"multi30k": options.multi30k, "tokenize": options.tokenize, "metrics": options.metric}
    settings["sources"] = texts.pop() if sources else ()
    others = texts.pop() if options.against else None
    _print_report(options, evaluate_text(hypotheses, texts, others, **settings))


def _evaluate_translator(options: argparse.Namespace, model: Any) -> None:
    _ = model.translate  # a `UserError` if the model does not translate
    for name in LANGUAGE.keys() & options.flags.keys():
        raise UserError(f"--{name} is for {LANGUAGE[name]} models")
    sources, *references = _plain_texts(texts_to_score(options.source, options.reference), languages_of(options))
    overrides = decode_overrides(options, model.decode_config)
    if options.tune:
        _tune(options, model, sources, references)
        return
    other = translator_of(options, options.against) if options.against else None
    report = evaluate_model(
        model, sources, references, other, options.multi30k, options.tokenize, overrides, options.metric
    )
    if "glossary" in overrides:
        print(overrides["glossary"].summary(), file=sys.stderr)
    _print_report(options, report)
    if options.save:
        with output(options.save, "--save") as file:
            file.writelines(f"{line}\n" for line in report.hypotheses)


def _tune(options: argparse.Namespace, model: Any, sources: list[str], references: list[list[str]]) -> None:
    print("headwise: a text that a setting was chosen by no longer tests it: tune on validation data", file=sys.stderr)
    tuning = tune_length_penalty(model, sources, references, options.tokenize, decode_overrides(options))
    if options.save == IN_MODEL:
        row = tuning.describe([Path(path).name for path in (options.source, *options.reference)])
        print(f"{_save(options.model, tuning, row)}: length_penalty is {tuning.best} from now on", file=sys.stderr)
    _print(options, tuning.as_json(), tuning.render())


def _save(model: str, tuning: Tuning, row: str) -> Path:
    """Write the best value into the model's folder, and return that."""
    folder = folder_of(model)
    if is_family(folder):
        write_length_penalty(folder, tuning.best)
    else:
        write_decoding(folder, tuning.decoding, lambda card: with_row(card, DECODING_ROW, row))
    return folder


def _evaluate_alignment(options: argparse.Namespace) -> None:
    gold = read_gold(options.alignments)
    if options.hypothesis:
        score = score_alignment(read_links(options.hypothesis), gold)
        _print(options, score.as_json(), score.render())
        return
    if not (options.model and options.source and options.target):
        raise UserError("--alignments needs links to score: --hypothesis, or MODEL, --source and --target")
    model = translator_of(options)
    texts = [source_text(options.source), target_text(options.target, "--target")]
    sources, targets = parallel_texts(texts, languages_of(options))
    check_links(options.alignments, [pair.possible for pair in gold], sources, targets)
    reverse = translator_of(options, options.reverse) if options.reverse else None
    score, head = score_alignment(model.align(sources, targets, reverse=reverse), gold), model.alignment_head
    _print(options, {**score.as_json(), "head": head.as_json()}, f"{score.render()}\n{head}")

"""`sightline score`, `sightline evaluate` and `sightline info`."""

import argparse
import json
import sys
from typing import Any

from sightline.cli.files import aligned, output
from sightline.cli.options import decode_options, decode_overrides, load_model, model_options
from sightline.errors import UserError


def add(commands: Any) -> None:
    """Register the commands."""
    _score_options(commands)
    _evaluate_options(commands)
    _info_options(commands)


def _score_options(commands: Any) -> None:
    parser = commands.add_parser("score", help="how probable a model finds given translations")
    model_options(parser)
    parser.add_argument("--source", required=True, metavar="FILE")
    parser.add_argument("--target", required=True, metavar="FILE")
    parser.add_argument("-o", "--output", default="-", help="file to write (default: standard output)")
    parser.set_defaults(run=run_score)


def run_score(options: argparse.Namespace) -> None:
    """One JSON line per pair, and the corpus perplexity on standard error."""
    from sightline.evaluate.score import corpus_perplexity

    sources, targets = aligned(options.source, options.target)
    scores = load_model(options).score(sources, targets)
    with output(options.output) as file:
        for score in scores:
            record = {
                "log_prob": score.log_prob,
                "perplexity": score.perplexity,
                "token_log_probs": score.token_log_probs,
            }
            file.write(json.dumps(record) + "\n")
    pieces = sum(len(score.token_log_probs) for score in scores)
    print(f"perplexity {corpus_perplexity(scores):.4f} over {pieces:,} pieces, {len(scores):,} pairs", file=sys.stderr)


def _evaluate_options(commands: Any) -> None:
    parser = commands.add_parser("evaluate", help="score a model on a test set: BLEU, accuracy, or forecast errors")
    model_options(parser)
    source = "text to translate; of a classifier texts and labels (.tsv), of a forecaster a .csv file"
    parser.add_argument("--source", required=True, metavar="FILE", help=source)
    reference = "one or several references, for a translation model"
    parser.add_argument("--reference", default=[], nargs="+", metavar="FILE", help=reference)
    parser.add_argument("--against", metavar="MODEL", help="another model, compared by paired bootstrap")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    multi30k = "add the tokenised, lowercased BLEU of the Multi30k literature; LANG is the target language"
    parser.add_argument("--multi30k", metavar="LANG", help=multi30k)
    parser.add_argument("--tokenize", default="13a", help="sacreBLEU's tokenizer for BLEU (default: %(default)s)")
    parser.add_argument("--save", metavar="FILE", help="keep the translations")
    decode_options(parser)
    parser.set_defaults(run=run_evaluate)


def run_evaluate(options: argparse.Namespace) -> None:
    """Of a translation model BLEU, chrF++ and TER with signatures, and the settings they were decoded with; of a
    classifier accuracy and F1; of a forecaster errors beside those of naive forecasts.
    """
    from sightline.api import load
    from sightline.model_directory import task_of

    if task_of(options.model) == "translate":
        _evaluate_translator(options)
        return
    given = ["--reference"] if options.reference else []
    given += [f"--{name}" for name in ("against", "multi30k", "save") if getattr(options, name)]
    given += ["--" + name.replace("_", "-") for name in decode_overrides(options)]
    if given:
        raise UserError(f"{given[0]} is for translation models; {options.model} needs --source alone")
    report = load(options.model, options.device).evaluate([options.source])
    print(json.dumps(report.as_json(), indent=2) if options.json else report.render())


def _evaluate_translator(options: argparse.Namespace) -> None:
    from sightline.evaluate.report import evaluate_model, render

    if not options.reference:
        raise UserError("--reference is required: the file or files to compare translations with")
    sources, *references = aligned(options.source, *options.reference)
    model = load_model(options)
    other = load_model(options, options.against) if options.against else None
    report = evaluate_model(
        model, sources, references, other, options.multi30k, options.tokenize, decode_overrides(options)
    )
    if options.save:
        with output(options.save) as file:
            file.writelines(f"{line}\n" for line in report.hypotheses)
    print(json.dumps(report.as_json(), indent=2) if options.json else render(report))


def _info_options(commands: Any) -> None:
    parser = commands.add_parser("info", help="what a model is and how it was made")
    model_options(parser)
    parser.set_defaults(run=run_info)


def run_info(options: argparse.Namespace) -> None:
    """The configuration of a model, section by section."""
    from sightline.api import load

    for name, value in load(options.model, options.device).info().items():
        if isinstance(value, dict):
            print(f"\n[{name}]")
            for key, inner in value.items():
                print(f"{key} = {json.dumps(inner)}")
        else:
            print(f"{name} = {json.dumps(value)}")

"""`sightline results`: runs beside each other, as a table and as learning curves."""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.cli.files import in_file, out_file, output
from sightline.cli.options import decode_options, decode_overrides, device_option, document_languages, output_option
from sightline.errors import UserError

if TYPE_CHECKING:
    from sightline.results.hypotheses import EvaluationSet
    from sightline.results.runs import Group
    from sightline.results.table import ResultsTable

NAME = re.compile(r"\w[\w.-]*")
FORMATS = ("markdown", "csv", "latex")
PICTURES = (".png", ".svg")


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("results", help="runs beside each other: a table of scores, and learning curves")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="model directories that `sightline train` wrote")
    test = (
        "a test set: its name, source and one or several references, or its name and a file of pairs as `train` takes "
    )
    test += "it (.tsv, .po, .tmx, ...); without, the table is about validation"
    parser.add_argument(
        "--test", action="append", nargs="+", type=in_file, default=[], metavar=("NAME", "SOURCE REFERENCE"), help=test
    )
    metric = "BLEU, chrF++, TER or ROUGE-1, -2 and -L, also several (default: BLEU chrF++)"
    parser.add_argument("--metric", nargs="+", default=["BLEU", "chrF++"], metavar="METRIC", help=metric)
    multi30k = "add the tokenised, lowercased BLEU of the Multi30k literature; LANG is the target language"
    parser.add_argument("--multi30k", default="", metavar="LANG", help=multi30k)
    tokenize = "sacreBLEU's tokenizer for BLEU (default: 13a; zh or char for references without spaces between words)"
    parser.add_argument("--tokenize", default="", metavar="NAME", help=tokenize)
    baseline = "model of the table that the others are compared with, by paired bootstrap"
    parser.add_argument("--baseline", default="", metavar="MODEL", help=baseline)
    group = "runs that are one model, such as tiny='tiny-*' (default: those that differ in nothing but the seed)"
    parser.add_argument("--group", nargs="+", default=[], metavar="MODEL=PATTERN", help=group)
    parser.add_argument("--format", choices=FORMATS, default="markdown", help="of the table (default: %(default)s)")
    output_option(parser)
    curves = "draw learning curves: validation figures, and the training loss as thin lines; .png or .svg"
    parser.add_argument("--curves", type=out_file, metavar="FILE", help=curves)
    axis = "what --curves are drawn against (default: %(default)s)"
    parser.add_argument("--axis", choices=["updates", "hours"], default="updates", help=axis)
    document_languages(parser)
    device_option(parser)
    decode_options(parser, without=("n_best", "draft_length"))
    parser.set_defaults(run=run_results)


def run_results(options: argparse.Namespace) -> None:
    """Print the table, write the picture."""
    from sightline.results import formats
    from sightline.results.runs import group_runs, read_runs, without_training

    if options.curves and Path(options.curves).suffix.lower() not in PICTURES:
        raise UserError(f"--curves {options.curves}: name a .png or .svg file")
    runs = without_training(read_runs(options.runs, ["translate"] if options.test else None), _say)
    groups = group_runs(runs, _patterns(options.group))
    if options.curves:
        _draw(options, groups)
    table = _scored(options, groups) if options.test else _validated(groups)
    with output(options.output) as file:
        file.write(formats.FORMATS[options.format](table))


def _patterns(pairs: list[str]) -> dict[str, str]:
    for pair in pairs:
        if not all(pair.partition("=")):
            raise UserError(f"--group {pair}: write MODEL=PATTERN, such as tiny='tiny-*'")
    return dict(pair.split("=", 1) for pair in pairs)


def _draw(options: argparse.Namespace, groups: "list[Group]") -> None:
    from sightline.report.figures import render
    from sightline.results.curves import learning_curves

    picture = render(learning_curves(groups, options.axis), Path(options.curves).suffix[1:].lower())
    with output(options.curves) as file:
        file.buffer.write(picture)
    print(f"{options.curves}: learning curves of {sum(len(group.runs) for group in groups)} runs", file=sys.stderr)


def _validated(groups: "list[Group]") -> "ResultsTable":
    from sightline.results.curves import validation_table

    return validation_table(groups)


def _scored(options: argparse.Namespace, groups: "list[Group]") -> "ResultsTable":
    from sightline.evaluate.bleu import measures
    from sightline.results.hypotheses import Hypotheses, describe_decoding
    from sightline.results.table import check_baseline, score_table

    check_baseline(options.baseline, groups)
    tests = _test_sets(options.test, options.languages)
    references = [line for test in tests for stream in test.references for line in stream]
    chosen = measures(options.metric, options.tokenize, multi30k=options.multi30k, references=references)
    kept = {
        run.name: Hypotheses(run, options.device, decode_overrides(options, run.config.decode), _say)
        for group in groups
        for run in group.runs
    }
    lines = {name: {test.name: own.of(test) for test in tests} for name, own in kept.items()}
    return score_table(groups, tests, lines, chosen, options.baseline, describe_decoding(kept))


def _test_sets(given: list[list[str]], languages: Sequence[str]) -> "list[EvaluationSet]":
    from sightline.cli.parallel_texts import holds_pairs, parallel_texts, texts_to_score
    from sightline.results.hypotheses import EvaluationSet

    tests: dict[str, EvaluationSet] = {}
    for name, *files in given:
        if not NAME.fullmatch(name) or not files or (len(files) == 1 and not holds_pairs(files[0])):
            raise UserError(
                f"--test {' '.join([name, *files])}: write NAME SOURCE REFERENCE, or NAME and a file of pairs; "
                "files are named after NAME"
            )
        if name in tests:
            raise UserError(f"--test {name}: two test sets have this name")
        sources, *references = parallel_texts(texts_to_score(files[0], files[1:], ("--test", "--test")), languages)
        tests[name] = EvaluationSet(name, sources, references)
    return list(tests.values())


def _say(message: str) -> None:
    print(f"sightline: {message}", file=sys.stderr)

"""Example: headwise results runs/small-* --test news=test.en test.de"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from headwise.cli.files import output
from headwise.cli.options import (
    DECODING,
    decode_options,
    decode_overrides,
    device_option,
    document_languages,
    format_option,
    metric_options,
    output_option,
)
from headwise.cli.parallel_texts import holds_pairs, parallel_texts, texts_to_score
from headwise.cli.rules import FlagRule, in_file, out_file
from headwise.errors import UserError
from headwise.evaluate.bleu import measures
from headwise.evaluate.pages.figures import render_figure
from headwise.lab.results.curves import learning_curves, validation_table
from headwise.lab.results.formats import FORMATS
from headwise.lab.results.hypotheses import EvaluationSet, Hypotheses, describe_decoding
from headwise.lab.results.runs import Group, group_runs, other_differences, read_runs, without_training
from headwise.lab.results.table import ResultsTable, check_baseline, score_table
from headwise.text.files.sources import count_of

NAME = re.compile(r"\w[\w.-]*")
PICTURES = (".png", ".svg")
RULES = (
    FlagRule(
        ("metric", "multi30k", "tokenize", "baseline", "device", "languages", *DECODING),
        lambda o: not o.test,
        "is for test sets: add --test NAME=SOURCE REFERENCE",
    ),
    FlagRule(("axis",), lambda o: not o.curves, "is for --curves FILE"),
)

COMMON = (
    *("--test", "--metric", "--baseline", "--group", "--curves", "--axis", "--format", "--output", "--device"),
    "--beam-size",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="model folders written by `headwise train`")
    test = "test set: its name, the source and one or several references; or its name and a file of pairs "
    test += "(.tsv, .po, .tmx, ...); may be repeated (default: validation scores)"
    metavar = ("NAME=SOURCE", "REFERENCE")
    parser.add_argument("--test", action="append", nargs="+", type=in_file, default=[], metavar=metavar, help=test)
    metric_options(parser, ("BLEU", "chrF++"))
    baseline = "row of the table to compare the others with, by paired bootstrap"
    parser.add_argument("--baseline", default="", metavar="ROW", help=baseline)
    group = "runs to show as one row, such as tiny='tiny-*' (default: runs that differ only in the seed)"
    parser.add_argument("--group", nargs="+", default=[], metavar="ROW=PATTERN", help=group)
    format_option(parser, "format of the table", ("markdown", "csv", "latex"))
    output_option(parser)
    curves = ".png or .svg file to draw learning curves in: validation, and training loss as thin lines"
    parser.add_argument("--curves", type=out_file, metavar="FILE", help=curves)
    axis = "horizontal axis of --curves (default: %(default)s)"
    parser.add_argument("--axis", choices=["updates", "hours"], default="updates", help=axis)
    document_languages(parser)
    device_option(parser)
    decode_options(parser, without=("n_best", "draft_length"))


def run(options: argparse.Namespace) -> None:
    """Print the table, draw the learning curves."""
    if options.curves and Path(options.curves).suffix.lower() not in PICTURES:
        raise UserError(f"--curves {options.curves}: name a .png or .svg file")
    runs = without_training(read_runs(options.runs, ["translate"] if options.test else None), _say)
    groups = group_runs(runs, _patterns(options.group))
    if others := other_differences(groups):
        _say(f"warning: the runs also differ in {', '.join(others)}; with equal settings the table compares one thing")
    picture = _curves(options, groups) if options.curves else b""
    table = _scored(options, groups) if options.test else validation_table(groups)
    with output(options.output) as file:
        file.write(FORMATS[options.format](table))
    if options.curves:
        _write_curves(options.curves, picture, len(runs))


def _patterns(pairs: list[str]) -> dict[str, str]:
    for pair in pairs:
        if not all(pair.partition("=")):
            raise UserError(f"--group {pair}: write ROW=PATTERN, such as tiny='tiny-*'")
    return dict(pair.split("=", 1) for pair in pairs)


def _curves(options: argparse.Namespace, groups: list[Group]) -> bytes:
    return render_figure(learning_curves(groups, options.axis), Path(options.curves).suffix[1:].lower())


def _write_curves(path: str, picture: bytes, runs: int) -> None:
    with output(path, "--curves") as file:
        file.buffer.write(picture)
    print(f"{path}: learning curves of {count_of(runs, 'run')}", file=sys.stderr)


def _scored(options: argparse.Namespace, groups: list[Group]) -> ResultsTable:
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


def _test_sets(given: list[list[str]], languages: Sequence[str]) -> list[EvaluationSet]:
    tests: dict[str, EvaluationSet] = {}
    for first, *others in given:
        name, equals, source = first.partition("=")
        files = [source, *others] if equals else others  # without "=" the name is a word of its own
        if not NAME.fullmatch(name) or not files or (len(files) == 1 and not holds_pairs(files[0])):
            raise UserError(
                f"--test {' '.join([first, *others])}: write NAME=SOURCE REFERENCE, or NAME=FILE for a file of pairs; "
                "files are named after NAME"
            )
        if name in tests:
            raise UserError(f"--test {name}: two test sets have this name")
        sources, *references = parallel_texts(texts_to_score(files[0], files[1:], ("--test", "--test")), languages)
        tests[name] = EvaluationSet(name, sources, references)
    return list(tests.values())


def _say(message: str) -> None:
    print(f"headwise: {message}", file=sys.stderr)

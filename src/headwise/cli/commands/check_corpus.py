"""Example: headwise check-corpus train.en train.de --valid valid.en valid.de -o report.html"""

import argparse
import os
from collections.abc import Iterator, Sequence

from headwise.cli.files import output
from headwise.cli.options import document_languages, files_option
from headwise.cli.parallel_texts import checked_corpora
from headwise.cli.rules import in_file, out_file
from headwise.config.data import TranslationData
from headwise.config.setting import converted
from headwise.config.settings import RunConfig, load_recipe
from headwise.errors import UserError
from headwise.evaluate.corpus.page import survey_page
from headwise.evaluate.corpus.report import TRAINING, VALIDATION, check_corpora, report_lines
from headwise.text.files.corpus import Corpus
from headwise.text.files.sources import count_of
from headwise.text.files.split import parse_validation_size, split_corpora


def add_options(parser: argparse.ArgumentParser) -> None:
    text = "training files, as for `headwise train --train`"
    parser.add_argument("train", nargs="+", type=in_file, metavar="FILE", help=text)
    valid = "validation files; or 1%% or 500pairs, to check the part that `headwise train --valid` would hold out"
    files_option(parser, "--valid", valid)
    test = "test set, with a name if there are several: --test news=test.en test.de; may be repeated"
    metavar = ("[NAME=]SOURCE", "TARGET")
    parser.add_argument("--test", nargs="+", type=in_file, action="append", default=[], metavar=metavar, help=test)
    recipe = (
        "recipe, as for `headwise train`, whose limits decide which pairs training would drop (default: the limits "
    )
    recipe += "that `headwise settings` shows)"
    parser.add_argument("--recipe", default="", metavar="NAME", help=recipe)
    document_languages(parser)
    text = "HTML page to write the report to (default: printed only)"
    parser.add_argument("-o", "--output", type=out_file, default="", metavar="FILE", help=text)


def run(options: argparse.Namespace) -> None:
    """Print a report and write its page."""
    if options.output and not options.output.endswith((".html", ".htm")):
        raise UserError(f"-o {options.output}: the report is a page; give it the ending .html")
    amount = parse_validation_size(options.valid)
    named = {TRAINING: options.train, VALIDATION: [] if amount else options.valid, **_tests(options)}
    flags = {TRAINING: "check-corpus", VALIDATION: "--valid"}
    sets, languages = dict[str, list[Corpus]](), options.languages
    for name, paths in named.items():
        if paths:
            sets[name], languages = checked_corpora(flags.get(name, "--test"), paths, languages)
    config = converted((load_recipe(options.recipe) if options.recipe else RunConfig()).data, TranslationData)
    report = check_corpora(sets, config, list(_split_note(sets[TRAINING], options.valid)), languages)
    with output("-") as file:
        file.writelines(line + "\n" for line in report_lines(report))
    if options.output:
        with output(options.output) as file:
            file.write(survey_page(report))


def _tests(options: argparse.Namespace) -> dict[str, list[str]]:
    """The test sets by name."""
    sets: dict[str, list[str]] = {}
    for number, (first, *others) in enumerate(options.test, start=1):
        name, equals, path = first.partition("=")
        if not equals or os.path.exists(first):
            name, path = "test" if len(options.test) == 1 else f"test {number}", first
        name = name if name.startswith("test") else f"test {name}"
        if name in sets:
            raise UserError(f"--test {first}: there is a '{name}' already; give each set a name of its own")
        sets[name] = [path, *others]
    return sets


def _split_note(train: Sequence[Corpus], valid: Sequence[str]) -> Iterator[str]:
    """A note on the pairs that `train --valid 1%` would hold out."""
    amount = parse_validation_size(valid)
    if amount:
        parts = split_corpora(train, amount)
        yield (
            f"headwise train --valid {amount.text} would take {count_of(parts.taken, 'pair')} to validate on, and drop "
            f"{parts.dropped:,} others that share a sentence with them"
        )

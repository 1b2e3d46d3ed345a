"""Corpora that commands write, and the translation of their lines."""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headwise.cli.files import output, with_progress_bar
from headwise.cli.rules import out_file
from headwise.errors import UserError
from headwise.text.files.sources import Pair


def corpus_output_option(parser: argparse.ArgumentParser) -> None:
    text = "corpus to write, a .jsonl or .tsv file"
    parser.add_argument("-o", "--output", type=out_file, required=True, metavar="FILE", help=text)


def line_translator(
    options: argparse.Namespace, model: Any, overrides: Mapping[str, Any], files: Sequence[str]
) -> Callable[[Iterable[str]], Iterable[Any]]:
    """A function that translates lines of `files` and shows its progress."""
    return lambda lines: with_progress_bar(model.translate_lines(lines, workers=options.workers, **overrides), *files)


def pair_format(path: str) -> Callable[[Pair], str]:
    """The function that formats a pair for a corpus of that name; `UserError` for an unknown ending."""
    lines = {".jsonl": _json_line, ".tsv": _tsv_line}
    if Path(path).suffix not in lines:
        raise UserError(f"-o {path}: give it the ending .jsonl or .tsv, by which `headwise train` knows the format")
    return lines[Path(path).suffix]


def _json_line(pair: Pair) -> str:
    return json.dumps({"src": pair[0], "tgt": pair[1]}, ensure_ascii=False)


def _tsv_line(pair: Pair) -> str:
    return "\t".join(text.replace("\t", " ") for text in pair)


def write_corpus(path: str, as_line: Callable[[Pair], str], pairs: Iterable[Pair]) -> int:
    """Write a corpus, which appears when it is complete; returns its number of pairs."""
    with output(path) as file:
        count = write_pairs(file.write, as_line, pairs)
    if not count:
        print(f"headwise: {path}: has no pair", file=sys.stderr)
    return count


def write_pairs(write: Callable[[str], object], as_line: Callable[[Pair], str], pairs: Iterable[Pair]) -> int:
    """Write a line for each pair; returns their number."""
    count = 0
    for pair in pairs:
        write(as_line(pair) + "\n")
        count += 1
    return count

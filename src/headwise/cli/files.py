"""Input lines, output files that appear when complete, and progress bars."""

import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO, TypeVar

from headwise.cli.replacing import text_output
from headwise.data.corpus import read_lines
from headwise.data.sources import display_name
from headwise.errors import UserError

Item = TypeVar("Item")
MOST_CHARACTERS = 200_000  # of a line: a book has as many on 100 pages
STANDARD_OUTPUT = ("-", "/dev/stdout")


def lines_of(path: str, command: str) -> Iterator[str]:
    """The lines of a text file or of standard input, blank ones too; `UserError` for a text in place of a file name."""
    if path != "-" and not os.path.exists(path) and (" " in path or not Path(path).suffix):
        text = path if len(path) < 40 else f"{path[:40]}..."
        way = f"echo {shlex.quote(text)} | headwise {command} MODEL"
        raise UserError(f"{text}: no such file; for a text itself: {way}")
    return not_too_long(read_lines(path, allow_empty=True), display_name(path))


def not_too_long(lines: Iterable[str], name: str, done: int = 0) -> Iterator[str]:
    """The lines; `UserError` for one of more than `MOST_CHARACTERS`. Line numbers start behind `done`."""
    for number, line in enumerate(lines, done + 1):
        if len(line) > MOST_CHARACTERS:
            has = f"line {number} has {len(line):,} characters, {MOST_CHARACTERS:,} at most"
            raise UserError(f"{name}: {has}; write a sentence or a paragraph on each line")
        yield line


@contextmanager
def output(path: str) -> Iterator[TextIO]:
    """Standard output, or a file that appears under its name when complete; compressed if the name ends in `.gz`."""
    if path in STANDARD_OUTPUT:
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
        yield sys.stdout
        return
    with text_output(path) as file:
        yield file


def with_progress_bar(items: Iterable[Item], *paths: str) -> Iterable[Item]:
    """The items with a progress bar (sentences per second, time left) on a terminal, if all `paths` are files."""
    if not sys.stderr.isatty() or "-" in paths:
        return items
    from tqdm import tqdm

    total = None if any(path.endswith(".gz") for path in paths) else _count_lines(paths[0])
    return tqdm(items, total=total, unit=" sentences", smoothing=0.05)


def _count_lines(path: str) -> int:
    with open(path, "rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))

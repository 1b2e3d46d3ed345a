"""Input lines, also as they arrive; output files, which replace existing ones when complete; progress bars."""

import os
import select
import shlex
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from gzip import GzipFile
from io import TextIOWrapper
from pathlib import Path
from typing import IO, TextIO, TypeVar, cast

from headwise.errors import UserError, writing
from headwise.text.files.corpus import LONGEST_LINE, decode_line, read_lines
from headwise.text.files.sources import STANDARD_INPUT, count_of, display_name

PACKED = (".bz2", ".xz", ".zst", ".zip", ".7z")  # compressed files that no command reads or writes


@contextmanager
def text_output(path: str, option: str) -> Iterator[TextIO]:
    """A file of text; compressed if its name ends in `.gz`."""
    if path.endswith(PACKED):
        packings = "only .gz is written compressed; name a file that ends in .gz, or in none of these"
        raise UserError(f"{option} {path}: {packings}")
    with binary_output(path, option) as file:
        packed = GzipFile("", "wb", fileobj=file, mtime=0) if path.endswith(".gz") else None
        with TextIOWrapper(cast(IO[bytes], packed or file), encoding="utf-8", newline="\n") as text:
            yield text
            text.flush()
            if packed:
                packed.close()


@contextmanager
def binary_output(path: str, option: str = "-o") -> Iterator[IO[bytes]]:
    """A file that appears under its name when it is complete; errors name the option that it was given by.

    It keeps the permissions of the file that it replaces, and its owner if the system permits.
    """
    target = Path(path)
    if target.is_dir() or not target.absolute().parent.is_dir():
        wrong = "is a folder" if target.is_dir() else "its folder does not exist"
        raise UserError(f"{option} {path}: {wrong}; name a file")
    with writing(f"{option} {path}"):
        if _is_stream(target):
            with open(os.open(target, os.O_WRONLY | os.O_APPEND), "wb") as file:
                yield file
            return
        target = target.resolve()
        draft = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            with draft.open("wb") as file:
                if target.exists():
                    _take_over(file.fileno(), target.stat())
                yield file
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)


def _is_stream(path: Path) -> bool:
    """Whether this is a device, a pipe or a file opened by a shell, which is written to and never replaced."""
    return (path.exists() and not path.is_file()) or str(path.absolute()).startswith(("/dev/fd/", "/dev/std", "/proc/"))


def _take_over(file: int, before: os.stat_result) -> None:
    """Give an open file the owner and the permissions of another."""
    if not hasattr(os, "fchown"):
        return  # Windows has neither
    if (os.fstat(file).st_uid, os.fstat(file).st_gid) != (before.st_uid, before.st_gid):
        with suppress(PermissionError):
            os.fchown(file, before.st_uid, before.st_gid)
    os.fchmod(file, stat.S_IMODE(before.st_mode))


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
            has = f"line {number} has {count_of(len(line), 'character')}, {MOST_CHARACTERS:,} at most"
            raise UserError(f"{name}: {has}; write a sentence or a paragraph on each line")
        yield line


@contextmanager
def output(path: str, option: str = "-o") -> Iterator[TextIO]:
    """Standard output, or a file that appears under its name when complete; compressed if the name ends in `.gz`.

    Errors name the `option` that the path was given by.
    """
    if path in STANDARD_OUTPUT:
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
        yield sys.stdout
        return
    with text_output(path, option) as file:
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


BLOCK = 1 << 16  # bytes read at once


def arrives(path: str) -> bool:
    """Whether lines come from a pipe, a socket or a terminal, so that more can arrive at any time."""
    if path != STANDARD_INPUT or sys.platform == "win32":  # select works for sockets only
        return False
    try:
        return not stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def arriving(file: int, most: int) -> Iterator[list[str]]:
    """The lines of a file by its number, in chunks of at most `most`, as soon as no more are ready.

    Raises:
        UserError: a line is not UTF-8, or longer than `corpus.LONGEST_LINE`.
    """
    waiting: list[str] = []
    number = offset = 0
    for raw in _raw_lines(file):
        if raw:
            number += 1
            waiting.append(decode_line(raw, STANDARD_INPUT, number, offset))
            offset += len(raw)
        if waiting and (len(waiting) == most or not raw):
            yield waiting
            waiting = []


def _raw_lines(file: int) -> Iterator[bytes]:
    """Lines with their line ends; an empty one if the next would have to be waited for, and at the end."""
    partial: list[bytes] = []  # parts of a line without an end
    while True:
        if not select.select([file], [], [], 0)[0]:
            yield b""
        block = os.read(file, BLOCK)
        if not block:
            break
        *lines, rest = block.split(b"\n")
        for line in lines:
            yield b"".join([*partial, line, b"\n"])
            partial = []
        partial += [rest] if rest else []
        if len(partial) > LONGEST_LINE // BLOCK and sum(map(len, partial)) > LONGEST_LINE:
            raise UserError(f"standard input: a line is longer than {LONGEST_LINE >> 20} MiB; is it text?")
    if partial:
        yield b"".join(partial)
    yield b""

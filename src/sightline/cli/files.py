"""Files in and out for the commands: lines, output that appears when complete, progress."""

import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from gzip import GzipFile
from io import TextIOWrapper
from pathlib import Path
from stat import S_IMODE
from typing import IO, TextIO, TypeVar, cast

from sightline.errors import UserError, writing

Item = TypeVar("Item")
MOST_CHARACTERS = 200_000  # of a line: a book has as many on 100 pages
STANDARD_OUTPUT = ("-", "/dev/stdout")
PACKED = (".bz2", ".xz", ".zst", ".zip", ".7z")  # which are read by no command, and written by none


def in_file(path: str) -> str:
    """The type of an option that names a file to read; by it `rules.refuse_overwriting` knows them."""
    return path


def out_file(path: str) -> str:
    """The type of an option that names a file to write."""
    return path


def lines_of(path: str, verb: str) -> Iterator[str]:
    """The lines of a text file or of standard input, blank ones too; `UserError` where a text stands for a file."""
    from sightline.data.corpus import display_name, read_lines

    if path != "-" and not os.path.exists(path) and (" " in path or not Path(path).suffix):
        said = path if len(path) < 40 else f"{path[:40]}..."
        raise UserError(f"{said}: no such file; for a text itself: echo {shlex.quote(said)} | sightline {verb} MODEL")
    return not_too_long(read_lines(path, allow_empty=True), display_name(path))


def not_too_long(lines: Iterable[str], name: str, done: int = 0) -> Iterator[str]:
    """Lines, of which `done` came before; `UserError` for one of more than `MOST_CHARACTERS`."""
    for number, line in enumerate(lines, done + 1):
        if len(line) > MOST_CHARACTERS:
            has = f"line {number} has {len(line):,} characters, {MOST_CHARACTERS:,} at most"
            raise UserError(f"{name}: {has}; write a sentence or a paragraph on each line")
        yield line


@contextmanager
def output(path: str) -> Iterator[TextIO]:
    """Standard output, or a file that appears under its name when it is complete; compressed if that ends in `.gz`."""
    if path in STANDARD_OUTPUT:
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
        yield sys.stdout
        return
    if path.endswith(PACKED):
        raise UserError(f"-o {path}: only .gz is written compressed; name a file that ends in .gz, or in none of these")
    with binary_output(path) as file:
        packed = GzipFile("", "wb", fileobj=file, mtime=0) if path.endswith(".gz") else None
        with TextIOWrapper(cast(IO[bytes], packed or file), encoding="utf-8", newline="\n") as text:
            yield text
            text.flush()
            if packed:
                packed.close()


@contextmanager
def binary_output(path: str) -> Iterator[IO[bytes]]:
    """A file that appears under its name when it is complete.

    It has the permissions of the file that it replaces, and its owner where the system lets it.
    """
    target = Path(path)
    if target.is_dir() or not target.absolute().parent.is_dir():
        raise UserError(f"-o {path}: {'is a folder' if target.is_dir() else 'its folder does not exist'}; name a file")
    with writing(f"-o {path}"):
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
    """Whether this is a device, a pipe or what a shell has opened, which is written to and never replaced."""
    return (path.exists() and not path.is_file()) or str(path.absolute()).startswith(("/dev/fd/", "/dev/std", "/proc/"))


def _take_over(file: int, before: os.stat_result) -> None:
    """Give an open file the owner and the permissions of another."""
    if not hasattr(os, "fchown"):
        return  # Windows has neither
    if (os.fstat(file).st_uid, os.fstat(file).st_gid) != (before.st_uid, before.st_gid):
        with suppress(PermissionError):
            os.fchown(file, before.st_uid, before.st_gid)
    os.fchmod(file, S_IMODE(before.st_mode))


def progress(items: Iterable[Item], *paths: str) -> Iterable[Item]:
    """A progress bar with sentences a second and time left, where somebody watches and `paths` are files."""
    if not sys.stderr.isatty() or "-" in paths:
        return items
    from tqdm import tqdm

    total = None if any(path.endswith(".gz") for path in paths) else _count_lines(paths[0])
    return tqdm(items, total=total, unit=" sentences", smoothing=0.05)


def _count_lines(path: str) -> int:
    with open(path, "rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))

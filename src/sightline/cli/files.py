"""Files in and out for the commands: lines, output that appears when complete, progress."""

import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO, TypeVar

from sightline.errors import UserError, writing

Item = TypeVar("Item")


def in_file(path: str) -> str:
    """The type of an option that names a file to read; by it `rules.refuse_overwriting` knows them."""
    return path


def out_file(path: str) -> str:
    """The type of an option that names a file to write."""
    return path


def lines_of(path: str, verb: str) -> Iterator[str]:
    """The lines of a text file or of standard input, blank ones too; `UserError` where a text stands for a file."""
    from sightline.data.corpus import read_lines

    if path != "-" and not os.path.exists(path) and (" " in path or not Path(path).suffix):
        said = path if len(path) < 40 else f"{path[:40]}..."
        raise UserError(f"{said}: no such file; for a text itself: echo {shlex.quote(said)} | sightline {verb} MODEL")
    return read_lines(path, allow_empty=True)


@contextmanager
def output(path: str) -> Iterator[TextIO]:
    """Standard output, or a file that appears under its name when it is complete."""
    if path == "-":
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
        yield sys.stdout
        return
    target = Path(path)
    if target.is_dir() or not target.absolute().parent.is_dir():
        raise UserError(f"-o {path}: {'is a folder' if target.is_dir() else 'its folder does not exist'}; name a file")
    special = target.exists() and not target.is_file()  # a device or a pipe is written to, never replaced
    target = target if special else target.resolve()
    draft = target if special else target.with_name(f".{target.name}.{os.getpid()}")
    with writing(f"-o {path}"):
        try:
            with draft.open("w", encoding="utf-8", newline="\n") as file:
                yield file
            if not special:
                draft.replace(target)
        finally:
            if not special:
                draft.unlink(missing_ok=True)


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

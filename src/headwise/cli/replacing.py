"""Output files, which replace existing files when they are complete."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from gzip import GzipFile
from io import TextIOWrapper
from pathlib import Path
from stat import S_IMODE
from typing import IO, TextIO, cast

from headwise.errors import UserError, writing

PACKED = (".bz2", ".xz", ".zst", ".zip", ".7z")  # compressed files that no command reads or writes


@contextmanager
def text_output(path: str) -> Iterator[TextIO]:
    """A file of text; compressed if its name ends in `.gz`."""
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

    It keeps the permissions of the file that it replaces, and its owner if the system permits.
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
    """Whether this is a device, a pipe or a file opened by a shell, which is written to and never replaced."""
    return (path.exists() and not path.is_file()) or str(path.absolute()).startswith(("/dev/fd/", "/dev/std", "/proc/"))


def _take_over(file: int, before: os.stat_result) -> None:
    """Give an open file the owner and the permissions of another."""
    if not hasattr(os, "fchown"):
        return  # Windows has neither
    if (os.fstat(file).st_uid, os.fstat(file).st_gid) != (before.st_uid, before.st_gid):
        with suppress(PermissionError):
            os.fchown(file, before.st_uid, before.st_gid)
    os.fchmod(file, S_IMODE(before.st_mode))

"""The cache on disk: its location, and writing files and folders atomically.

Everything in it (`$HEADWISE_CACHE`, otherwise `~/.cache/headwise`) can be deleted at any time. Several users may share
it: modes follow the umask, and groups follow a setgid folder. A draft is written in a temporary folder; the next writer
removes those that killed processes have left.

The name of a file or folder is a hash: of its content, or else of what it was made from. Then it is a folder with the
checksums of its files (`checked_folder`), which are compared before every use (`is_intact`): a disk may damage a cache
that is years old.
"""

import hashlib
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headwise.errors import FULL, UserError
from headwise.lock import temporary_folder

DRAFT_PREFIX = ".partial-"  # of the folders of drafts
SUMS = "SHA256SUMS"  # in a checked folder; `sha256sum -c` reads it


def cache_folder(folder: Path | None) -> Path:
    """`folder` if given, otherwise `$HEADWISE_CACHE`, otherwise `~/.cache/headwise`."""
    return folder or Path(os.environ.get("HEADWISE_CACHE") or Path.home() / ".cache" / "headwise")


@contextmanager
def cache(folder: Path | None) -> Iterator[Path]:
    """The cache folder, created if necessary.

    Raises:
        UserError: something in it cannot be written or read.
    """
    where = cache_folder(folder)
    try:
        where.mkdir(parents=True, exist_ok=True)
        yield where
    except OSError as error:
        what = f": {error.filename}" if error.filename and Path(error.filename) != where else ""
        advice = "free some space there or " if error.errno in FULL else ""
        raise UserError(
            f"{where}: the cache cannot be used ({error.strerror or error}{what}); "
            f"{advice}set HEADWISE_CACHE to another folder"
        ) from error


@contextmanager
def draft_path(folder: Path, name: str) -> Iterator[Path]:
    """A path to write a file or folder to, before moving it into the cache; what remains there is deleted."""
    with temporary_folder(folder, DRAFT_PREFIX) as draft:
        yield draft / name


@contextmanager
def draft_folder(target: Path, is_complete: Callable[[Path], bool]) -> Iterator[Path]:
    """A folder to write into; it is renamed to `target` if no error occurs."""
    with draft_path(target.parent, target.name) as draft:
        draft.mkdir()
        yield draft
        try:
            os.rename(draft, target)
        except OSError:
            if not is_complete(target):  # otherwise another process has written the same content
                raise


@contextmanager
def checked_folder(target: Path) -> Iterator[Path]:
    """Like `draft_folder`, with the checksums of its files, which `is_intact` compares."""
    with draft_folder(target, is_intact) as draft:
        yield draft
        sums = "".join(f"{sha256(path)}  {path.name}\n" for path in sorted(draft.iterdir()))
        (draft / SUMS).write_text(sums, encoding="utf-8")


def is_intact(folder: Path) -> bool:
    """Whether a checked folder exists and has exactly the files that were written; a warning names a damaged one."""
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8", errors="replace").split("\n")
        listed = {name: digest for digest, _, name in (line.partition("  ") for line in lines if line)}
        present = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
        damaged = sorted({SUMS, *listed} ^ present)
        damaged = damaged or [name for name in listed if sha256(folder / name) != listed[name]]
    except (FileNotFoundError, NotADirectoryError, PermissionError):  # or its writer had an older version
        return False
    except OSError as error:  # of the disk
        damaged = [error.filename or ""]
    if damaged:
        warnings.warn(f"{folder / damaged[0]}: damaged in the cache, so it is made again", stacklevel=2)
    return not damaged


def sha256(path: Path) -> str:
    """The SHA-256 digest of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

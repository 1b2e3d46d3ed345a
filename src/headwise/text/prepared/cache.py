"""The cache on disk: its location, and writing files and folders atomically.

Everything in it (`$HEADWISE_CACHE`, otherwise `~/.cache/headwise`) can be deleted at any time. Several users may share
it: modes follow the umask, and groups follow a setgid folder. A draft is written in a locked folder; the next writer
removes drafts without a lock, which killed processes have left.

The name of a file or folder is a hash: of its content, or else of what it was made from. Then it is a folder with the
checksums of its files (`checked_folder`), which are compared before every use (`is_intact`): a disk may damage a cache
that is years old.
"""

import hashlib
import os
import shutil
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from headwise.errors import FULL, NO_LOCKS, UserError

DRAFT_PREFIX = ".partial-"  # of the folders of drafts
LOCK = "lock"
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
    remove_stale_drafts(folder)
    draft, lock = _locked_folder(folder)
    try:
        yield draft / name
    finally:
        if lock:
            lock.release()
        shutil.rmtree(draft, ignore_errors=True)


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


def remove_stale_drafts(folder: Path) -> None:
    """Delete drafts of processes that have ended; those of running processes and of other users stay."""
    for draft in folder.glob(f"{DRAFT_PREFIX}*"):
        with suppress(OSError, NotImplementedError):
            if not (draft / LOCK).exists():
                draft.rmdir()  # works only if empty: its writer died before locking it, or will create another one
            elif lock := _lock(draft):
                lock.release()
                shutil.rmtree(draft, ignore_errors=True)


def _locked_folder(folder: Path) -> tuple[Path, Any]:
    """A new folder for a draft, and the lock on it; None on a file system without locks, where drafts stay."""
    while True:
        draft = folder / f"{DRAFT_PREFIX}{uuid.uuid4().hex}"
        draft.mkdir()
        try:
            lock = _lock(draft)
        except FileNotFoundError:  # another process took it for a stale draft and deleted it
            continue
        except NotImplementedError:
            (draft / LOCK).touch()  # so that nobody takes it for an empty draft
            return draft, None
        if lock and (draft / LOCK).exists():
            return draft, lock


def _lock(draft: Path) -> Any:
    """Lock a folder of drafts; None if another process holds the lock.

    Raises:
        NotImplementedError: the file system has no locks.
    """
    from filelock import FileLock  # not needed for translating

    lock = FileLock(draft / LOCK)
    try:
        with suppress(TimeoutError):
            lock.acquire(blocking=False)
            return lock
    except OSError as error:
        if error.errno in NO_LOCKS:
            raise NotImplementedError(str(error)) from error
        raise
    return None

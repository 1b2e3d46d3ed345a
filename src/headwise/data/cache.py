"""The cache on disk: its location, and writing files and folders atomically.

Everything in it (`$HEADWISE_CACHE`, otherwise `~/.cache/headwise`) can be deleted at any time. Several users may share
it: modes follow the umask, and groups follow a setgid folder. A draft is written in a locked folder; the next writer
removes drafts without a lock, which killed processes have left.
"""

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from headwise.errors import FULL, UserError

DRAFT_PREFIX = ".partial-"  # of the folders of drafts
LOCK = "lock"


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


def remove_stale_drafts(folder: Path) -> None:
    """Delete drafts of processes that have ended; those of running processes and of other users stay."""
    for draft in folder.glob(f"{DRAFT_PREFIX}*"):
        with suppress(OSError):
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
            return draft, None
        if lock and (draft / LOCK).exists():
            return draft, lock


def _lock(draft: Path) -> Any:
    """Lock a folder of drafts; None if another process holds the lock."""
    from filelock import FileLock  # not needed for translating

    lock = FileLock(draft / LOCK)
    with suppress(TimeoutError):
        lock.acquire(blocking=False)
        return lock
    return None

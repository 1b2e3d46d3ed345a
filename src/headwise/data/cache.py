"""The cache on disk: where it is, and how files and folders get into it whole.

Everything in it (`$HEADWISE_CACHE`, else `~/.cache/headwise`) can be deleted at any time. Several users may share it:
files and folders get the modes that the umask allows, and the group of a folder with the setgid bit. A draft lies in a
folder that its writer holds locked, so the next writer can tell what a killed process has left behind, and removes it.
"""

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from headwise.errors import FULL, UserError

DRAFTS = ".partial-"  # what the folders of drafts begin with
LOCK = "lock"


def cache_folder(folder: Path | None) -> Path:
    """Where the cache is: as given, else `$HEADWISE_CACHE`, else `~/.cache/headwise`."""
    return folder or Path(os.environ.get("HEADWISE_CACHE") or Path.home() / ".cache" / "headwise")


@contextmanager
def cache(folder: Path | None) -> Iterator[Path]:
    """The cache folder, made if need be.

    Raises:
        UserError: something in it cannot be written or read.
    """
    where = cache_folder(folder)
    try:
        where.mkdir(parents=True, exist_ok=True)
        yield where
    except OSError as error:
        what = f": {error.filename}" if error.filename and Path(error.filename) != where else ""
        room = "free some space there or " if error.errno in FULL else ""
        raise UserError(
            f"{where}: the cache cannot be used ({error.strerror or error}{what}); "
            f"{room}set HEADWISE_CACHE to another folder"
        ) from error


@contextmanager
def draft_path(folder: Path, name: str) -> Iterator[Path]:
    """Where to write a file or a folder of the cache before it gets its name; what is left there is removed."""
    remove_stale_drafts(folder)
    room, lock = _locked_folder(folder)
    try:
        yield room / name
    finally:
        if lock:
            lock.release()
        shutil.rmtree(room, ignore_errors=True)


@contextmanager
def draft_folder(target: Path, is_whole: Callable[[Path], bool]) -> Iterator[Path]:
    """A folder to write into, which becomes `target` in one step once all has gone well."""
    with draft_path(target.parent, target.name) as draft:
        draft.mkdir()
        yield draft
        try:
            os.rename(draft, target)
        except OSError:
            if not is_whole(target):  # else another process was faster with the same content
                raise


def remove_stale_drafts(folder: Path) -> None:
    """Remove the drafts of processes that have ended; those of living ones, and of other users, stay."""
    for room in folder.glob(f"{DRAFTS}*"):
        with suppress(OSError):
            if not (room / LOCK).exists():
                room.rmdir()  # only if empty: its writer died before it had the lock, or makes another one
            elif lock := _lock(room):
                lock.release()
                shutil.rmtree(room, ignore_errors=True)


def _locked_folder(folder: Path) -> tuple[Path, Any]:
    """A new folder for drafts and the lock on it; None on a file system without locks, where nobody removes drafts."""
    while True:
        room = folder / f"{DRAFTS}{uuid.uuid4().hex}"
        room.mkdir()
        try:
            lock = _lock(room)
        except FileNotFoundError:  # it looked like one whose writer has died, and was removed
            continue
        except NotImplementedError:
            return room, None
        if lock and (room / LOCK).exists():
            return room, lock


def _lock(room: Path) -> Any:
    """The lock on a folder of drafts; None if another process has it."""
    from filelock import FileLock  # a translation needs none

    lock = FileLock(room / LOCK)
    with suppress(TimeoutError):
        lock.acquire(blocking=False)
        return lock
    return None

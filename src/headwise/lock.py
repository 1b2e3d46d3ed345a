"""Locks between processes: of open files, model folders, temporary folders, and folders that are trained into.

The operating system holds a lock and releases it when the process dies, so a killed process leaves none. Some network
file systems have no locks.
"""

import errno
import json
import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headwise.errors import UserError, writing

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

try:
    import msvcrt
except ImportError:
    msvcrt = None

LOCK = ".lock"  # in a folder that is trained into: process id and host name
TEMPORARY_LOCK = "lock"  # in a temporary folder
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)  # of file systems, such as NFS without lockd
FAR = 1 << 30  # the byte that is locked on Windows, where nobody else could read it


def lock_file(descriptor: int, shared: bool = False) -> bool | None:
    """Lock an open file until it is closed or this process ends; its position becomes 0.

    Returns:
        False if another open file has the lock, None if the system or the file system has no locks.
    """
    try:
        if fcntl:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        elif msvcrt:
            os.lseek(descriptor, FAR, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # pyright: ignore[reportAttributeAccessIssue] of Windows
        return True if fcntl or msvcrt else None
    except (BlockingIOError, PermissionError):
        return False
    except OSError as error:
        if error.errno in NO_LOCKS:
            return None
        raise
    finally:
        os.lseek(descriptor, 0, os.SEEK_SET)


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Waits for the lock of an existing file or folder, and holds it; without effect where it cannot be locked."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def temporary_folder(parent: Path, prefix: str, mode: int = 0o777) -> Iterator[Path]:
    """A new folder, deleted at the end; first those with this prefix that killed processes have left.

    Those of other users stay, and all of them on a file system without locks.
    """
    for abandoned in parent.glob(f"{prefix}*"):
        with suppress(OSError):
            _delete_unlocked(abandoned)
    folder, descriptor = _locked_folder(parent, prefix, mode)
    try:
        yield folder
    finally:
        os.close(descriptor)
        shutil.rmtree(folder, ignore_errors=True)


def _delete_unlocked(folder: Path) -> None:
    try:
        descriptor = os.open(folder / TEMPORARY_LOCK, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    except FileNotFoundError:
        return folder.rmdir()  # works only if empty: its process died before locking it, or will create another one
    try:
        if is_unlocked := lock_file(descriptor):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)
    if is_unlocked and not fcntl:
        shutil.rmtree(folder, ignore_errors=True)  # Windows keeps open files


def _locked_folder(parent: Path, prefix: str, mode: int) -> tuple[Path, int]:
    """A new folder, and the descriptor of the lock in it."""
    while True:
        folder = parent / f"{prefix}{os.urandom(16).hex()}"
        folder.mkdir(mode)
        try:
            descriptor = os.open(folder / TEMPORARY_LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:  # another process took it for an abandoned folder
            continue
        try:
            if lock_file(descriptor) is not False and (folder / TEMPORARY_LOCK).exists():
                return folder, descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """A context manager in which this process alone trains into `folder`, with its id and host in a file `.lock`.

    `folder` is created if necessary, and removed again if it stays empty. A stale lock of this host is taken over; that
    of another host must be removed by hand, because its processes are not visible here. Without locks of the system
    only the file counts.

    Raises:
        UserError: another process has the lock; the message names process and host.
    """
    created = [path for path in (folder, *folder.absolute().parents) if not path.exists()]
    path = folder / LOCK
    try:
        with writing(path):
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = _acquire(path)
        try:
            yield
        finally:
            _release(descriptor, path)
    finally:
        for parent in created:
            with suppress(OSError):  # not empty
                parent.rmdir()


def is_held(folder: Path) -> bool:
    """Whether a process trains into `folder`; a lock of another host counts, as in `locked`."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        process, host = _owner(os.read(descriptor, 1000))
        if not process or host != platform.node():
            return bool(process)
        return _alive(process) and lock_file(descriptor, shared=True) is not True  # else the process id was reused
    finally:
        os.close(descriptor)


def _acquire(path: Path) -> int:
    """An open descriptor of the lock file; closing it releases the lock."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _take(descriptor, path)
        except BaseException:
            os.close(descriptor)
            raise
        if _is_at(descriptor, path):
            return descriptor
        os.close(descriptor)  # its last owner has just removed it


def _take(descriptor: int, path: Path) -> None:
    """Lock the file and write process id and host into it; `UserError` if another process holds it."""
    free = lock_file(descriptor)
    process, host = _owner(os.read(descriptor, 1000))
    here = host in ("", platform.node())
    if free is None:
        free = not process or (here and not _alive(process))
    if not (free and here):
        raise _locked_error(path, process, host, here)
    content = json.dumps({"process": os.getpid(), "host": platform.node()}).encode()
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    try:
        os.write(descriptor, content)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _release(descriptor: int, path: Path) -> None:
    os.ftruncate(descriptor, 0)  # an empty lock has no owner, if the file cannot be removed
    if _is_at(descriptor, path):
        with suppress(OSError):
            path.unlink()
    os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is still at this path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _owner(content: bytes) -> tuple[int, str]:
    """Process and host of a lock; 0 and "" if there are none.

    >>> _owner(b'{"process": 7, "host": "a"}'), _owner(b""), _owner(b"torn{")
    ((7, 'a'), (0, ''), (0, ''))
    """
    try:
        owner = json.loads(content)
        return int(owner["process"]), str(owner["host"])
    except (ValueError, TypeError, KeyError):
        return 0, ""


def _alive(process: int) -> bool:
    """Whether the process runs on this host; always True on Windows, where checking would end it."""
    if os.name == "nt":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it exists, but belongs to another user
        return True
    return True


def _locked_error(path: Path, process: int, host: str, here: bool) -> UserError:
    who = f"process {process or 'unknown'} on {'this machine' if here else host}"
    if here:
        advice = "wait for it, stop it, or name another folder"
    else:
        advice = f"name another folder, or, if that process has ended, remove its lock: rm {path}"
    return UserError(f"--out {path.parent}: {who} trains into it; {advice}")

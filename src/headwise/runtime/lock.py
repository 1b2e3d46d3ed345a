"""A lock so that only one process trains into a folder: `.lock` with a process id and a host name.

The operating system holds the lock (`flock`) and releases it when the process dies, so stale locks of this host are
taken over. A stale lock of another host must be removed by hand, because its processes are not visible here. Without
`flock` (Windows, some network file systems) only the file counts.
"""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headwise.errors import NO_LOCKS, UserError, writing

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

LOCK = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """A context manager in which this process holds the lock.

    `folder` is created if necessary, and removed again if it stays empty.

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
        if not process or host != socket.gethostname():
            return bool(process)
        return _alive(process) and _flock(descriptor, shared=True) is not True  # else the process id was reused
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
    free = _flock(descriptor)
    process, host = _owner(os.read(descriptor, 1000))
    here = host in ("", socket.gethostname())
    if free is None:
        free = not process or (here and not _alive(process))
    if not (free and here):
        raise _locked_error(path, process, host, here)
    content = json.dumps({"process": os.getpid(), "host": socket.gethostname()}).encode()
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


def _flock(descriptor: int, shared: bool = False) -> bool | None:
    """Whether the operating system grants the lock; None if it does not support locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in NO_LOCKS:
            return None
        raise


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

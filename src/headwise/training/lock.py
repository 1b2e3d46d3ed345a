"""One training a folder: a lock that says who holds it, `.lock` with a process id and a host.

The operating system holds it where it can (`flock`), and lets go of it when a process dies, whatever it died of: what
is left behind by a process of this host is taken over. Only the name of another host, whose processes cannot be seen
from here, has to be removed by hand. Without such a lock (Windows, some network file systems) the file alone counts.
"""

import errno
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headwise.errors import UserError, writing

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

LOCK = ".lock"
NO_LOCKS_HERE = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # a file system that cannot lock


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Inside, no other process trains into `folder`, which is made if need be and removed again if it stays empty.

    Raises:
        UserError: another process has the lock; it names process and host.
    """
    made = [path for path in (folder, *folder.absolute().parents) if not path.exists()]
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
        for parent in made:
            with suppress(OSError):  # something is in it
                parent.rmdir()


def is_held(folder: Path) -> bool:
    """Whether a process trains into `folder`; a lock that names another host counts, as it does for `locked`."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        process, host = _owner(os.read(descriptor, 1000))
        if not process or host != socket.gethostname():
            return bool(process)
        return _alive(process) and _flock(descriptor, shared=True) is not True  # else another process has its number
    finally:
        os.close(descriptor)


def _acquire(path: Path) -> int:
    """An open descriptor of the lock, which is ours as long as it stays open."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _take(descriptor, path)
        except BaseException:
            os.close(descriptor)
            raise
        if _is_at(descriptor, path):
            return descriptor
        os.close(descriptor)  # its last owner removed it meanwhile


def _take(descriptor: int, path: Path) -> None:
    """Lock the file and write our name into it; `UserError` if it is another's."""
    free = _flock(descriptor)
    process, host = _owner(os.read(descriptor, 1000))
    here = host in ("", socket.gethostname())
    if free is None:
        free = not process or (here and not _alive(process))
    if not (free and here):
        raise _taken(path, process, host, here)
    content = json.dumps({"process": os.getpid(), "host": socket.gethostname()}).encode()
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    try:
        os.write(descriptor, content)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _release(descriptor: int, path: Path) -> None:
    os.ftruncate(descriptor, 0)  # where an open file cannot be removed, an empty one is nobody's
    if _is_at(descriptor, path):
        with suppress(OSError):
            path.unlink()
    os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file still goes by this name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _flock(descriptor: int, shared: bool = False) -> bool | None:
    """Whether the operating system gives us its lock; None where it has none."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in NO_LOCKS_HERE:
            return None
        raise


def _owner(content: bytes) -> tuple[int, str]:
    """Process and host in a lock; 0 and "" where it names none.

    >>> _owner(b'{"process": 7, "host": "a"}'), _owner(b""), _owner(b"torn{")
    ((7, 'a'), (0, ''), (0, ''))
    """
    try:
        owner = json.loads(content)
        return int(owner["process"]), str(owner["host"])
    except (ValueError, TypeError, KeyError):
        return 0, ""


def _alive(process: int) -> bool:
    """Whether there is such a process on this host; on Windows, where asking would end it, it is taken for alive."""
    if os.name == "nt":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # there, and somebody else's
        return True
    return True


def _taken(path: Path, process: int, host: str, here: bool) -> UserError:
    who = f"process {process or 'unknown'} on {'this machine' if here else host}"
    if here:
        way_out = "wait for it, stop it, or name another folder"
    else:
        way_out = f"name another folder, or, if that process has ended, remove its lock: rm {path}"
    return UserError(f"--out {path.parent}: {who} trains into it; {way_out}")

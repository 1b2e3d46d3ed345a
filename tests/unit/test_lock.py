"""Locks: held by real processes, taken over if stale, respected on other hosts; of folders, files and manifests."""

import errno
import fcntl
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from headwise import lock as module
from headwise.errors import UserError
from headwise.lock import LOCK, TEMPORARY_LOCK, exclusive, is_held, lock_file, locked, temporary_folder
from headwise.runtime.checkpoint import manifest

HOLDER = """
import sys
from pathlib import Path
from headwise.lock import locked, temporary_folder
with {}:
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(folder: Path, lock: str = "locked(Path(sys.argv[1]))") -> Iterator["subprocess.Popen[str]"]:
    """Another process that holds a lock until its standard input ends."""
    command = [sys.executable, "-c", HOLDER.format(lock), str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def refusal(folder: Path) -> str:
    with pytest.raises(UserError) as caught, locked(folder):
        pass
    return str(caught.value)


def leave(folder: Path, process: int, host: str) -> Path:
    """A stale lock."""
    (folder / LOCK).write_text(json.dumps({"process": process, "host": host}), encoding="utf-8")
    return folder / LOCK


def test_a_running_process_holds_the_lock(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        expected = f"--out {tmp_path}: process {process.pid} on this machine trains into it; wait for it, stop it, or"
        assert refusal(tmp_path).startswith(expected)
        process.communicate("")  # it ends, and lets go
    assert not (tmp_path / LOCK).exists()
    with locked(tmp_path):
        assert (tmp_path / LOCK).exists()


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        process.kill()
        process.wait()
        assert json.loads((tmp_path / LOCK).read_text())["process"] == process.pid
    with locked(tmp_path):
        assert json.loads((tmp_path / LOCK).read_text()) == {"process": os.getpid(), "host": socket.gethostname()}
    assert list(tmp_path.iterdir()) == []


def test_a_reused_process_id_is_no_owner(tmp_path: Path) -> None:
    leave(tmp_path, os.getppid(), socket.gethostname())
    with locked(tmp_path):
        pass


@pytest.mark.parametrize("torn", [b"", b"{", b"[]", b"\x00" * 9])
def test_an_incomplete_lock_has_no_owner(tmp_path: Path, torn: bytes) -> None:
    (tmp_path / LOCK).write_bytes(torn)
    with locked(tmp_path):
        pass


def test_the_lock_of_another_host_is_an_error_with_advice(tmp_path: Path) -> None:
    path = leave(tmp_path, 7, "elsewhere")
    before = path.read_bytes()
    told = refusal(tmp_path)
    assert told.startswith(f"--out {tmp_path}: process 7 on elsewhere trains into it; ")
    assert told.endswith(f"remove its lock: rm {path}")
    assert path.read_bytes() == before
    path.unlink()
    with locked(tmp_path):
        pass


def test_locking_twice_in_one_process_is_refused(tmp_path: Path) -> None:
    with locked(tmp_path):
        assert f"process {os.getpid()} on this machine" in refusal(tmp_path)
        assert (tmp_path / LOCK).exists()


def test_a_folder_is_left_as_it_was(tmp_path: Path) -> None:
    with pytest.raises(KeyError), locked(tmp_path / "new" / "deep"):
        raise KeyError
    assert list(tmp_path.iterdir()) == []
    with locked(tmp_path / "kept"):
        (tmp_path / "kept" / "file").touch()
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["file"]


def test_release_keeps_the_lock_of_another_process(tmp_path: Path) -> None:
    with ExitStack() as stack:
        with locked(tmp_path):
            (tmp_path / LOCK).unlink()
            stack.enter_context(locked(tmp_path))
        assert (tmp_path / LOCK).exists()


@pytest.mark.parametrize("missing", ["no fcntl", "no locks on this file system"])
def test_without_flock_the_file_counts(tmp_path: Path, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Unable:
        LOCK_EX = LOCK_NB = 0

        @staticmethod
        def flock(descriptor: int, how: int) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(module, "fcntl", None if missing == "no fcntl" else Unable)
    with locked(tmp_path):
        assert f"process {os.getpid()} on this machine" in refusal(tmp_path)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    leave(tmp_path, ended.pid, socket.gethostname())
    with locked(tmp_path):
        pass


def test_is_held_does_not_take_the_lock(tmp_path: Path) -> None:
    assert not is_held(tmp_path) and not is_held(tmp_path / "nowhere")
    with holder(tmp_path) as process:
        assert is_held(tmp_path) and is_held(tmp_path)
        process.kill()
        process.wait()
    assert (tmp_path / LOCK).exists() and not is_held(tmp_path)
    leave(tmp_path, os.getpid(), socket.gethostname())  # a number that another process has by now
    assert is_held(tmp_path) == (module.fcntl is None)
    leave(tmp_path, 1, "elsewhere")
    assert is_held(tmp_path)
    with locked(tmp_path / "other"):
        assert is_held(tmp_path / "other") and "trains into it" in refusal(tmp_path / "other")


def is_free(path: Path) -> bool:
    """Whether another open file gets the lock of a file or folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return lock_file(descriptor) is True
    finally:
        os.close(descriptor)


def test_temporary_folders_of_killed_processes_are_deleted(tmp_path: Path) -> None:
    made = 'temporary_folder(Path(sys.argv[1]), "a-", 0o700)'
    with holder(tmp_path, made) as killed:
        (left,) = tmp_path.iterdir()
        killed.kill()
        killed.wait()
        (left / "file").touch()
        (tmp_path / "b-").mkdir()
        with holder(tmp_path, made):
            (living,) = tmp_path.glob("a-*")
            assert living != left and living.stat().st_mode & 0o777 == 0o700
            with temporary_folder(tmp_path, "a-") as own:
                assert {path.name for path in tmp_path.iterdir()} == {living.name, own.name, "b-"}
            assert not own.exists() and living.exists()


def test_a_folder_that_another_process_has_just_deleted_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, locked_file = os.open, lock_file
    deleted: list[Path] = []

    def delete(path: Path) -> bool:
        if len(deleted) < 2 and path not in deleted:
            deleted.append(path)
            (path / TEMPORARY_LOCK).unlink(missing_ok=True)
            path.rmdir()
        return path in deleted

    def open_late(path: Path, *given: int) -> int:
        if not deleted:
            delete(path.parent)
        return opened(path, *given)

    def lock_late(descriptor: int) -> bool | None:
        delete(Path(os.readlink(f"/proc/self/fd/{descriptor}")).parent)
        return locked_file(descriptor)

    monkeypatch.setattr(os, "open", open_late)
    if Path("/proc/self/fd").is_dir():
        monkeypatch.setattr(module, "lock_file", lock_late)
    with temporary_folder(tmp_path, "a-") as folder:
        assert folder.is_dir() and folder not in deleted and deleted


def test_links_to_locks_of_others_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "a-").mkdir()
    (tmp_path / "a-" / TEMPORARY_LOCK).symlink_to(tmp_path / "file")
    with temporary_folder(tmp_path, "a-"):
        assert (tmp_path / "a-").exists()


def test_one_process_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with exclusive(tmp_path):
        assert not is_free(tmp_path)
    assert is_free(tmp_path)
    (tmp_path / "config.json").touch()
    held: list[bool] = []
    monkeypatch.setattr(manifest, "_write", lambda folder, listing: held.append(not is_free(folder)))
    manifest.seal(tmp_path)
    assert held == [True]


def test_locks_of_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There, other processes cannot read what is locked, so it lies behind the content."""

    class Windows:
        LK_NBLCK = 2

        @staticmethod
        def locking(descriptor: int, how: int, count: int) -> None:
            assert (how, count) == (Windows.LK_NBLCK, 1) and os.lseek(descriptor, 0, os.SEEK_CUR) > 1 << 20
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PermissionError(errno.EACCES, "Permission denied") from None

    monkeypatch.setattr(module, "fcntl", None)
    monkeypatch.setattr(module, "msvcrt", Windows)
    left = leave(tmp_path, os.getppid(), socket.gethostname())
    with locked(tmp_path):
        assert json.loads(left.read_text())["process"] == os.getpid()
        assert is_held(tmp_path) and f"process {os.getpid()} on this machine" in refusal(tmp_path)
    (tmp_path / "a-left").mkdir()
    (tmp_path / "a-left" / TEMPORARY_LOCK).touch()
    with temporary_folder(tmp_path, "a-") as first, temporary_folder(tmp_path, "a-") as second:
        assert {*tmp_path.iterdir()} == {first, second}

"""Stored files: bounded in bytes, number and time; nothing is left of what failed, or of servers that were killed."""

import asyncio
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwise.lock import TEMPORARY_LOCK
from headwise.serve.parameters import RequestError
from headwise.serve.storage import PREFIX, Storage, StorageLimits, serving_folder


async def store(storage: Storage, path: Path, content: bytes) -> None:
    """Write a file, and keep it as a result of its own."""
    await storage.write(path, content)
    storage.keep(path.name, path)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_old_results_make_room(tmp_path: Path) -> None:
    async def run() -> None:
        storage = Storage(StorageLimits(bytes=100))
        await storage.write(tmp_path / "upload", b"a" * 30)
        for name in ("b", "c"):
            await store(storage, tmp_path / name, b"b" * 30)
        await storage.write(tmp_path / "c", b"c" * 40)  # replaces its content
        assert names(tmp_path) == ["b", "c", "upload"]
        await store(storage, tmp_path / "d", b"d" * 30)
        assert names(tmp_path) == ["c", "d", "upload"] and not storage.has("b")
        with pytest.raises(RequestError) as refused:
            await storage.write(tmp_path / "e", b"e" * 71)
        assert refused.value.status == 507 and names(tmp_path) == ["upload"]
        storage.delete(tmp_path / "upload")
        await storage.write(tmp_path / "f", b"f" * 100)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("limits", "left"), [({"seconds": 0.0}, []), ({"results": 2}, ["b", "c"]), ({}, ["a", "b", "c"])]
)
def test_results_expire(tmp_path: Path, limits: dict[str, float], left: list[str]) -> None:
    async def run() -> None:
        storage = Storage(StorageLimits(**limits))  # type: ignore[arg-type]
        for name in ("a", "b", "c"):
            await store(storage, tmp_path / name, b"1")
        storage.expire()
        assert names(tmp_path) == left and [name for name in ("a", "b", "c") if storage.has(name)] == left

    asyncio.run(run())


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """The system writes no larger file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        storage = Storage(StorageLimits(bytes=300_000))
        for _ in range(3):  # its bytes do not count
            with largest_file(100_000), pytest.raises(RequestError, match="cannot store the file") as refused:
                await storage.write(tmp_path / "a", b"a" * 200_000)
            assert refused.value.status == 507 and names(tmp_path) == []

    asyncio.run(run())


def test_folders_of_killed_servers_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed, other, starting = tmp_path / f"{PREFIX}killed", tmp_path / "other", tmp_path / f"{PREFIX}starting"
    for folder in (killed, other, starting):
        (folder / "files").mkdir(parents=True)
        (folder / "files" / "a").write_bytes(b"1")
    (killed / TEMPORARY_LOCK).touch()
    (other / TEMPORARY_LOCK).touch()
    with serving_folder() as first:
        (first / "files").mkdir()
        assert not killed.exists()
        with serving_folder() as second:
            assert first != second and (first / "files").is_dir()
        assert not second.exists()
    assert not first.exists() and names(tmp_path) == [f"{PREFIX}starting", "other"]

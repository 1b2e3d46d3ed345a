"""Comparing two versions; `make bench-quick` runs the rows."""

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks"

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the benchmarks are not part of the source distribution")


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(FOLDER)
    before = {*sys.modules}
    yield import_module("compare")
    for name in {*sys.modules} - before:
        if (FOLDER / f"{name}.py").is_file():
            del sys.modules[name]


def git(folder: Path, *arguments: str) -> None:
    identity = "-c", "user.name=a", "-c", "user.email=a@example.org"
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def test_a_commit_is_checked_out_beside_the_working_tree(
    compare: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "ROOT", tmp_path)
    native = tmp_path / compare.NATIVE
    native.mkdir(parents=True)
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks/bench.py").write_text("earlier")
    (native / "code.c").write_text("")
    (tmp_path / ".gitignore").write_text("_library*\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "earlier")
    (native / "_library_scalar.so").write_text("compiled from the same sources")
    (tmp_path / "benchmarks/bench.py").write_text("later")
    git(tmp_path, "commit", "-qam", "later")
    folder = compare.checked_out("HEAD~1")
    assert (folder / "benchmarks/bench.py").read_text() == "earlier"
    assert (folder / compare.NATIVE / "_library_scalar.so").is_file()
    assert compare.checked_out("HEAD~1") == folder != compare.checked_out("HEAD")
    with pytest.raises(SystemExit, match="nowhere"):
        compare.checked_out("nowhere")


class Made:
    """A version that takes as many seconds as its tree says."""

    def __init__(self, tree: Path, row: str, turns: int) -> None:
        self.seconds = float(tree.name)

    def __call__(self, turn: int) -> tuple[float, int, str]:
        if not self.seconds:
            raise RuntimeError
        return self.seconds * (5 + turn), 3 << 20, "result" if turn else str(self.seconds)

    def close(self) -> None:
        pass


def test_ratios_are_those_within_a_turn(compare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "Version", Made)
    *_, ratio, before, now, same = compare.measure("greedy", {"base": Path("4"), "working tree": Path("2")}, 3)
    assert (ratio.low, ratio.median, ratio.high) == (2.0, 2.0, 2.0)
    assert (before, now, same) == ("3", "3", "no")
    assert compare.measure("greedy", {"base": Path("2"), "working tree": Path("2")}, 3)[-1] == "yes"
    assert compare.measure("greedy", {"base": Path("0"), "working tree": Path("2")}, 3)[1:] == [*"------"]

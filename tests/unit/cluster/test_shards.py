"""Results that are kept beside the output: found again, and only for the same question."""

from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headwise.errors import UserError
from headwise.serve.cluster.shards import ResultShards


@dataclass(frozen=True)
class Row:
    text: str
    score: float


ROWS = [Row("ä\u2028b", 0.1 + 0.2), Row("", float("-inf"))]


def asked(shards: ResultShards, number: int, of: Any, rows: list[Row] | Exception = ROWS) -> tuple[list[Row], int]:
    """The rows, and how often they were computed."""
    computed: list[int] = []

    def compute() -> "Future[list[Any]]":
        computed.append(1)
        future = Future[list[Any]]()
        future.set_exception(rows) if isinstance(rows, Exception) else future.set_result(rows)
        return future

    return shards.load_or_compute(number, of, lambda row: Row(**row), compute).result(5), len(computed)


def test_what_was_done_is_not_done_again(tmp_path: Path) -> None:
    shards = ResultShards(tmp_path / "out.parts")
    assert asked(shards, 0, ["a", {"beam": 4}]) == (ROWS, 1)
    assert asked(ResultShards(tmp_path / "out.parts"), 0, ["a", {"beam": 4}]) == (ROWS, 0)
    for number, of in ((0, ["b", {"beam": 4}]), (0, ["a", {"beam": 5}]), (1, ["a", {"beam": 4}])):
        assert asked(shards, number, of)[1] == 1
    shards.remove()
    assert not list(tmp_path.iterdir())


def test_a_fault_leaves_no_shard(tmp_path: Path) -> None:
    shards = ResultShards(tmp_path / "out.parts")
    with pytest.raises(UserError, match="too long"):
        asked(shards, 0, "a", UserError("too long"))
    assert not (tmp_path / "out.parts").exists()
    (tmp_path / "full.parts").write_text("a file where the folder should be")
    with pytest.raises(UserError, match=r"full\.parts"):
        asked(ResultShards(tmp_path / "full.parts"), 0, "a")


def test_without_a_file_to_write_nothing_is_kept(tmp_path: Path) -> None:
    assert asked(ResultShards(None), 0, "a") == asked(ResultShards(None), 0, "a") == (ROWS, 1)

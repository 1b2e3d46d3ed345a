"""Several processes translate like one: same text, same order, same errors, and a clear error if one dies."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headwise
from headwise.errors import UserError
from headwise.models.load import load
from headwise.models.translation import workers
from headwise.models.translation.workers import TASK_LINES, Loading, translate_in_processes, worth_sharing


def located(path: Path) -> Loading:
    return Loading((str(path),), "cpu", "auto", load)


def test_two_processes_write_what_one_writes(model_path: Path, task: Any, cli: Any, tmp_path: Path) -> None:
    lines = [src for src, _ in task(60, 3)]
    lines[7] = lines[20] = ""
    whole = [found.text for found in headwise.load(model_path, "cpu").translate(lines)]
    shared = translate_in_processes(located(model_path), lines, 2, task_lines=7)
    assert [found.text for found in shared] == whole
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    assert cli("translate", model_path, tmp_path / "in.txt", "--device", "cpu", "--workers", 2).lines == whole


def test_errors_of_workers_are_raised(model_path: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such model directory"):
        list(translate_in_processes(located(tmp_path / "none"), ["a"], 1))
    with pytest.raises(UserError, match="workers = -1"):
        headwise.load(model_path, "cpu").translate_lines(["a"], workers=-1)


def test_a_killed_process_is_reported(model_path: Path, task: Any) -> None:
    def lines() -> Iterator[str]:
        for number, (src, _) in enumerate(task(400, 4)):
            if number == 200:  # some results are back, so the process is up
                children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
                for child in map(int, children):
                    if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                        os.kill(child, signal.SIGKILL)
            yield src

    with pytest.raises(UserError, match="was killed, perhaps because memory ran out"):
        list(translate_in_processes(located(model_path), lines(), 1, task_lines=20))


def test_only_long_inputs_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "usable_cores", lambda: 3)
    for count, expected in ((3, 1), (2 * TASK_LINES - 1, 1), (2 * TASK_LINES, 3), (3 * TASK_LINES, 3)):
        shared, lines = worth_sharing(map(str, range(count)))
        assert shared == expected
        assert list(lines) == list(map(str, range(count)))

"""What one process of a distributed training does with errors; its parent only sees that it has ended."""

import multiprocessing
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.elastic.multiprocessing.api import SignalException

from headwise.errors import UserError
from headwise.pytorch.tasks import ranks
from headwise.pytorch.tasks.job import TrainRequest

REQUEST = TrainRequest("tiny", [], [], "out")


def failing(error: Exception) -> Any:
    def train_model(request: TrainRequest) -> str:
        raise error

    return train_model


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def test_an_error_of_a_callback_is_shown_with_its_traceback(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError):
        ranks._process(failing(ZeroDivisionError("of the callback")), REQUEST, torch.get_num_threads(), str(tmp_path))
    assert "ZeroDivisionError: of the callback" in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_user_error_is_left_for_the_parent(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        ranks._process(failing(UserError("no such file")), REQUEST, torch.get_num_threads(), str(tmp_path))
    assert (tmp_path / "1").read_text(encoding="utf-8") == "no such file"
    assert capfd.readouterr().err == ""


def test_a_signal_goes_to_the_processes_that_were_started_and_the_second_to_torch() -> None:
    start = multiprocessing.get_context("spawn").Process
    other, own = (start(target=time.sleep, args=(1000,), daemon=True) for _ in range(2))
    try:
        other.start()
        with ranks._kept_signal_handlers(), ranks.passed_on_signals() as received:
            own.start()
            signal.raise_signal(signal.SIGTERM)
            own.join()
            assert own.exitcode == -signal.SIGTERM and received == ["SIGTERM"]
            with pytest.raises(SignalException):
                signal.raise_signal(signal.SIGINT)
        assert other.is_alive()
    finally:
        other.kill()
        other.join()

"""What one process of a distributed training does with errors; its parent only sees that it has ended."""

from pathlib import Path
from typing import Any

import pytest
import torch

from headwise.errors import UserError
from headwise.tasks import ranks
from headwise.tasks.job import TrainRequest

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

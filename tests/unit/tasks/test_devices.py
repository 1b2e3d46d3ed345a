"""What a run does with CUDA devices, as far as a CPU can tell."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_runs import CASES, QUICK, write_inputs
from torch import nn

from headwise.config.settings import RunConfig, apply_settings
from headwise.core.train import Progress
from headwise.pytorch.tasks.job import TrainRequest
from headwise.pytorch.tasks.run import run_job
from headwise.pytorch.tasks.train import train_model


@pytest.mark.parametrize(
    ("precision", "device", "in_half", "reported"),
    [
        ("auto", "cuda", False, True),
        ("auto", "cuda", True, False),
        ("float32", "cuda", False, False),
        ("auto", "cpu", False, False),
    ],
)
def test_a_gpu_without_bfloat16_is_mentioned(
    precision: str, device: str, in_half: bool, reported: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job: Any = SimpleNamespace(config=apply_settings(RunConfig(), [f"train.precision={precision}"]))
    own: dict[str, Any] = {"progress": Progress(), "model": nn.Linear(1, 1), "run": lambda started: "SIGINT"}
    trainer: Any = SimpleNamespace(**own, device=torch.device(device), folder=tmp_path, in_half=in_half)
    run_job(trainer, TrainRequest("tiny", [], [], str(tmp_path)), job, {})
    assert ("train.precision" in capsys.readouterr().err) is reported


def test_a_run_on_a_cpu_leaves_gpus_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch warns, which is an error in tests, when the random state of several GPUs is kept."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.random, "_fork_rng_warned_already", False)
    _, recipe, own, name, lines, _ = CASES["text"]
    settings = [*QUICK, *own, "data.block_length=40"]
    path = str(write_inputs(tmp_path, name, lines))
    request = TrainRequest(recipe, [path], [path], str(tmp_path / "run"), settings, device="cpu", show=False)
    assert train_model(request) == "finished"

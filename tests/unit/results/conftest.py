"""Runs as folders hold them, without networks."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from headwise.config.model import TransformerConfig
from headwise.config.settings import RunConfig
from headwise.config.training import TrainConfig
from headwise.lab.results.runs import Run, read_runs
from headwise.runtime.checkpoint.trained import write_settings

MakeRun = Callable[..., Run]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Makes the folder of a run with a configuration and a log of validations."""

    def make(
        name: str,
        seed: int = 1,
        d_model: int = 16,
        corpus: str = "c",
        log: Sequence[dict[str, Any]] = (),
        task: str = "translate",
        **train: Any,
    ) -> Run:
        folder = tmp_path / name
        config = RunConfig(model=TransformerConfig(d_model=d_model, task=task), train=TrainConfig(seed=seed, **train))
        write_settings(folder, config, None, {"corpus": {"key": corpus}, "init": ""})
        (folder / "validation.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log), encoding="utf-8")
        return read_runs([str(folder)])[0]

    return make

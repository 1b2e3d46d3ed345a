"""Callbacks that log to TensorBoard, Weights & Biases and MLflow, with the real packages where they are installed."""

import json
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from headwise.errors import UserError
from headwise.pytorch.training.callbacks import Callbacks, TrainingStart
from headwise.pytorch.training.trackers import TRACKERS, MLflow, TensorBoard, Tracker, WandB

CONFIG = {"model": {"task": "translate", "langs": ("en", "de")}, "train": {"max_steps": 4, "init": ""}}


def run(tracker: Tracker, folder: Path, steps: Sequence[int], reason: str = "finished") -> None:
    """Report a run with a log record and a validation per step."""
    callbacks = Callbacks([tracker], torch.device("cpu"))
    callbacks.start(TrainingStart(folder, CONFIG, 1234, steps[0] - 1))
    for step in steps:
        callbacks.log({"step": step, "loss": None if step == 1 else 8.0 / step, "epoch": 0})
        sample = {"source": "a", "output": "b", "reference": "c"}
        callbacks.validation(
            {"step": step, "what": f"step {step}", "bleu": 10.0 * step, "best": True, "sample": sample}
        )
    callbacks.end(reason)


@pytest.mark.parametrize("tracker", TRACKERS, ids=lambda tracker: tracker.name)
def test_a_missing_package_is_an_error_that_says_what_to_install(
    tracker: type[Tracker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard" if tracker is TensorBoard else tracker.name, None)
    with pytest.raises(UserError, match=rf'^--{tracker.name} .*: pip install "headwise\[{tracker.name}\]"$'):
        tracker()


def test_tensorboard_has_the_figures(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run(TensorBoard(), tmp_path, [1, 2])
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert sorted(events.Tags()["scalars"]) == ["train/epoch", "train/loss", "valid/best", "valid/bleu"]
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [(2, 4.0)]
    assert [(event.step, event.value) for event in events.Scalars("valid/bleu")] == [(1, 10.0), (2, 20.0)]


def offline_records(path: Path) -> Iterator[Any]:
    """The records of a .wandb file: a LevelDB log of messages after a header of 7 bytes."""
    parse = pytest.importorskip("wandb.proto.wandb_internal_pb2").Record.FromString
    data, position, message = path.read_bytes(), 7, b""
    while position < len(data):
        _, size, kind = struct.unpack_from("<IHB", data, position)
        message += data[position + 7 : position + 7 + size]
        position += 7 + size
        if kind in (1, 4):  # the whole message, or its last part
            yield parse(message)
            message = b""


@pytest.mark.filterwarnings("ignore")
def test_wandb_has_the_figures_and_resumes_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run(WandB(), tmp_path, [1, 2])
    time.sleep(1.1)  # its files are named by the second
    run(WandB(), tmp_path, [3], "error")
    files = sorted((tmp_path / "wandb").glob("offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime)
    records = [record for path in files for record in offline_records(path)]
    run_id = (tmp_path / "wandb-run-id").read_text(encoding="utf-8").strip()
    runs = [record.run for record in records if record.HasField("run")]
    assert {(one.run_id, one.display_name) for one in runs} == {(run_id, tmp_path.name)}
    settings = {one.key: json.loads(one.value_json) for one in runs[0].config.update}
    assert settings["train"] == CONFIG["train"]
    logged = [{"/".join(i.nested_key): json.loads(i.value_json) for i in r.history.item} for r in records]
    figures = [{key: line[key] for key in line if key[0] != "_"} for line in logged if line]
    assert figures[:2] == [{"train/epoch": 0, "step": 1}, {"valid/bleu": 10, "valid/best": 1, "step": 1}]
    assert [(line["step"], line["train/loss"]) for line in figures if "train/loss" in line] == [(2, 4), (3, 8 / 3)]
    assert [record.exit.exit_code for record in records if record.HasField("exit")] == [0, 1]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("reason", "status"), [("patience", "FINISHED"), ("error", "FAILED"), ("SIGINT", "KILLED")])
def test_mlflow_has_the_figures_and_resumes_its_run(tmp_path: Path, reason: str, status: str) -> None:
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    run(MLflow(), tmp_path, [1, 2], "SIGTERM")
    run(MLflow(), tmp_path, [3], reason)
    run_id = (tmp_path / "mlflow-run-id").read_text(encoding="utf-8").strip()
    client = mlflow.MlflowClient()
    (only,) = client.search_runs(["0"])
    assert (only.info.run_id, only.info.run_name, only.info.status) == (run_id, tmp_path.name, status)
    assert only.data.params["train.max_steps"] == "4"
    assert [(one.step, one.value) for one in client.get_metric_history(run_id, "valid/bleu")] == [
        (1, 10.0),
        (2, 20.0),
        (3, 30.0),
    ]
    assert [one.step for one in client.get_metric_history(run_id, "train/loss")] == [2, 3]


@pytest.mark.filterwarnings("ignore")
def test_without_a_login_wandb_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")

    def refuse(**arguments: Any) -> None:
        raise wandb.errors.UsageError("No API key configured. Use `wandb login` to log in.")

    monkeypatch.setattr(wandb, "init", refuse)
    with pytest.raises(UserError, match=r"^--wandb: No API key configured.*WANDB_MODE=offline$"):
        run(WandB(), tmp_path, [1])

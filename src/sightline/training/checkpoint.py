"""Checkpoints: everything a run needs to go on as if it had never stopped, in files that are never unpickled.

A checkpoint is a folder `step-00001000` with `model.safetensors`, `training.safetensors` (optimiser, averages, random
state) and `state.json` (counters, and the checksums of all three). It is written under another name, synced and
renamed, so a folder of that name is complete; a checksum that does not fit means later damage, and the checkpoint
before is used.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from sightline.errors import WriteError, writing

MODEL, TRAINING, STATE = "model.safetensors", "training.safetensors", "state.json"


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint."""

    model: dict[str, Tensor]
    training: dict[str, Tensor]
    state: dict[str, Any]


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write `folder/step-N` atomically and return it; N is `state["step"]`. `WriteError` where it cannot be written."""
    target = folder / step_name(checkpoint.state["step"])
    draft = folder / f".{target.name}.{os.getpid()}"
    try:
        with writing(target, SafetensorError):
            _write(folder, target, draft, checkpoint)
    except WriteError:
        shutil.rmtree(draft, ignore_errors=True)  # it would take up what space there is
        raise
    return target


def _write(folder: Path, target: Path, draft: Path, checkpoint: Checkpoint) -> None:
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    save_file(own_storage(checkpoint.model), draft / MODEL)
    save_file(own_storage(checkpoint.training), draft / TRAINING)
    sums = {name: _sha256(draft / name) for name in (MODEL, TRAINING)} | {STATE: _state_sum(checkpoint.state)}
    (draft / STATE).write_text(json.dumps({**checkpoint.state, "sha256": sums}, indent=1), encoding="utf-8")
    for name in (MODEL, TRAINING, STATE):
        (draft / name).chmod((draft / STATE).stat().st_mode)  # safetensors (0.8) keeps files from all but their owner
        _sync(draft / name)
    shutil.rmtree(target, ignore_errors=True)
    draft.rename(target)
    _sync(folder)


def load_checkpoint(path: Path) -> Checkpoint:
    """Read one checkpoint; ValueError says what is wrong with it."""
    try:
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
        for name, expected in state.pop("sha256").items():
            if (_state_sum(state) if name == STATE else _sha256(path / name)) != expected:
                raise ValueError(f"{path / name}: checksum does not match")
        return Checkpoint(load_file(path / MODEL), load_file(path / TRAINING), state)
    except (
        OSError,
        KeyError,
        TypeError,
        AttributeError,
        UnicodeDecodeError,
        json.JSONDecodeError,
        SafetensorError,
    ) as error:
        raise ValueError(f"{path}: {type(error).__name__}: {error}") from None


def newest_checkpoint(folder: Path, warn: Any) -> Checkpoint | None:
    """The last checkpoint that is whole; `warn(message)` is called for each damaged one passed over."""
    for path in reversed(checkpoint_paths(folder)):
        try:
            return load_checkpoint(path)
        except ValueError as error:
            warn(f"checkpoint damaged, using the one before it: {error}")
    return None


def checkpoint_paths(folder: Path) -> list[Path]:
    """All checkpoints, oldest first."""
    return sorted(folder.glob("step-*"))


def remove_old(folder: Path, keep_last: int) -> None:
    """Delete all but the newest `keep_last` checkpoints, and drafts left by a crash."""
    for path in checkpoint_paths(folder)[:-keep_last]:
        shutil.rmtree(path)
    for draft in folder.glob(".step-*"):
        shutil.rmtree(draft, ignore_errors=True)


def average_parameters(models: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several parameter sets (section 6.1), summed in float64."""
    total: dict[str, Tensor] = {}
    count = 0
    for model in models:
        count += 1
        for name, value in model.items():
            total[name] = total[name] + value.double() if name in total else value.double()
    return {name: (value / count).float() for name, value in total.items()}


def step_name(step: int) -> str:
    """Name of a checkpoint's folder; eight digits keep alphabetical and numerical order the same."""
    return f"step-{step:08d}"


def own_storage(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copies on the CPU that share nothing, as safetensors demands."""
    return {name: value.detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()}


def _state_sum(state: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

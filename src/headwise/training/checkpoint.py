"""Checkpoints: everything needed to resume a run exactly, in files that are never unpickled.

A checkpoint is a folder `step-00001000` with `model.safetensors`, `training.safetensors` (optimiser, averages, random
state) and `state.json` (counters, and the checksums of all three). It is written under a temporary name, synced and
renamed, so it is always complete. If a checksum does not match, the file was damaged later, and the previous checkpoint
is used. Processes that share one model write one file each instead of those two (`sharded.py`).

A run writes an empty marker, `started`, before anything else and removes it with its first checkpoint. So a model
without checkpoints and without the marker is finished, and no run may replace it (`tasks.out_folder`).
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from headwise.errors import UserError, WriteError, writing

CHECKPOINTS = "checkpoints"  # the folder in a model directory
MODEL, TRAINING, STATE = "model.safetensors", "training.safetensors", "state.json"
STARTED = "started"


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint."""

    model: dict[str, Tensor]
    training: dict[str, Tensor]
    state: dict[str, Any]


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write `folder/step-N` atomically and return it; N is `state["step"]`. Raises `WriteError`."""
    target = folder / step_name(checkpoint.state["step"])
    draft = folder / f".{target.name}.{os.getpid()}"
    try:
        with writing(target, SafetensorError):
            _write(folder, target, draft, checkpoint)
    except WriteError:
        shutil.rmtree(draft, ignore_errors=True)  # free the disk space
        raise
    return target


def _write(folder: Path, target: Path, draft: Path, checkpoint: Checkpoint) -> None:
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    save_file(copies_on_cpu(checkpoint.model), draft / MODEL)
    save_file(copies_on_cpu(checkpoint.training), draft / TRAINING)
    for name in (MODEL, TRAINING):
        (draft / name).chmod(draft.stat().st_mode & 0o666)  # safetensors (0.8) makes files private
        sync(draft / name)
    finish_checkpoint(draft, target, checkpoint.state, {name: sha256(draft / name) for name in (MODEL, TRAINING)})


def finish_checkpoint(draft: Path, target: Path, state: Mapping[str, Any], sums: Mapping[str, str]) -> None:
    """Write the state of a checkpoint whose other files are synced, and rename it; `sums` are their checksums."""
    text = json.dumps({**state, "sha256": {**sums, STATE: _state_sum(state)}}, indent=1)
    (draft / STATE).write_text(text, encoding="utf-8")
    sync(draft / STATE)
    sync(draft)
    shutil.rmtree(target, ignore_errors=True)
    draft.rename(target)
    sync(target.parent)


def verify_checkpoint(path: Path, select: Callable[[Iterable[str]], Iterable[str]] = iter) -> dict[str, Any]:
    """Verify the checksums of a checkpoint and return its state; ValueError names the damaged or missing file.

    `select` chooses the files to check, for processes that share the work.
    """
    try:
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
        sums = state.pop("sha256")
        for name in select(sums):
            if (_state_sum(state) if name == STATE else sha256(path / name)) != sums[name]:
                raise ValueError(f"{path / name}: checksum does not match")
        return state
    except (OSError, KeyError, TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: {type(error).__name__}: {error}") from None


def load_checkpoint(path: Path) -> Checkpoint:
    """Read and verify a checkpoint; ValueError if it is damaged."""
    state = verify_checkpoint(path)
    try:
        return Checkpoint(load_file(path / MODEL), load_file(path / TRAINING), state)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path}: {type(error).__name__}: {error}") from None


Read = TypeVar("Read")


def newest_undamaged(folder: Path, read: Callable[[Path], Read], warn: Callable[[str], None]) -> Read | None:
    """`read(path)` of the newest undamaged checkpoint; None if there are no checkpoints.

    `read` raises ValueError for a damaged checkpoint; it is skipped, and `warn` gets one line about it.

    Raises:
        UserError: all checkpoints are damaged.
    """
    paths = checkpoint_paths(folder)
    problems = []
    for path in reversed(paths):
        try:
            checkpoint = read(path)
        except ValueError as error:
            problems.append(str(error))
            continue
        for problem in problems:
            warn(f"checkpoint damaged, using the one before it: {problem}")
        return checkpoint
    if not paths:
        return None
    many = f"all {len(paths)} checkpoints are" if len(paths) > 1 else "the only checkpoint is"
    raise UserError(
        f"--out {folder.parent}: {many} damaged ({problems[0]}), so the run cannot be resumed; "
        "restore one from a backup or train into another folder"
    )


def checkpoint_paths(folder: Path) -> list[Path]:
    """All checkpoints, oldest first."""
    return sorted(folder.glob("step-*"))


def remove_old(folder: Path, keep_last: int) -> None:
    """Delete all but the newest `keep_last` checkpoints, drafts left by a crash, and the `STARTED` marker."""
    (folder / STARTED).unlink(missing_ok=True)
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


def copies_on_cpu(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copies on the CPU with separate storage, as safetensors requires."""
    return {name: value.detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()}


def _state_sum(state: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def sha256(path: Path) -> str:
    """The checksum of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

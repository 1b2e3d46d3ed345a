"""Checkpoints: everything needed to resume a run exactly, in files that are never unpickled.

A checkpoint is a folder `step-00001000` with `model.safetensors`, `training.safetensors` (optimiser, averages, random
state) and `state.json` (counters, and the checksums of all files). Processes that share one model write their rows of
each tensor instead, as `model-00001-of-00002.safetensors` and so on; the rows of all files, in order, are the tensor.
So any number of processes, sharded or not, resumes from any checkpoint.

A thread writes and syncs copies of the tensors under a temporary name while training continues. The checkpoint is named
after the update in which all its files are complete, so a checkpoint with a name is always complete. If a checksum does
not match, a file was damaged later, and the checkpoint before it is used.

A run writes an empty marker, `started`, before anything else and removes it with its first checkpoint. So a model
without checkpoints and without the marker is finished, and no run may replace it (`pytorch.tasks.resuming`).
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from headwise.errors import UserError, WriteError, writing
from headwise.text.prepared.cache import sha256

CHECKPOINTS = "checkpoints"  # the folder in a model directory
MODEL, TRAINING, STATE = "model", "training", "state.json"
STARTED = "started"
NAME = re.compile(r"step-[0-9]{8,}")  # see `step_name`
DRAFT = re.compile(rf"\.{NAME.pattern}")  # an incomplete checkpoint
PART = re.compile(rf"({MODEL}|{TRAINING})(-[0-9]{{5}}-of-[0-9]{{5}})?\.safetensors")  # see `file_name`


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint."""

    model: Mapping[str, Tensor]
    training: Mapping[str, Tensor]
    state: Mapping[str, Any]


class CheckpointDraft:
    """A checkpoint that is being written under a temporary name; a thread writes the files of this process.

    Args:
        folder: for the checkpoint.
        checkpoint: its tensors are copied at once, so training may change them; a process without any writes no file.
        rank, size: this process, among those that write their rows of every tensor.
    """

    def __init__(self, folder: Path, checkpoint: Checkpoint, rank: int = 0, size: int = 1) -> None:
        self.step: int = checkpoint.state["step"]
        self._target = folder / step_name(self.step)
        self._path = self._target.with_name(f".{self._target.name}")
        self._state = checkpoint.state
        kinds = {MODEL: checkpoint.model, TRAINING: checkpoint.training}
        files = {file_name(kind, rank, size): copies_on_cpu(tensors) for kind, tensors in kinds.items() if tensors}
        thread = ThreadPoolExecutor(1)
        self._sums = thread.submit(self._write, files)
        thread.shutdown(wait=False)

    def _write(self, files: dict[str, dict[str, Tensor]]) -> dict[str, str]:
        with writing(self._target, SafetensorError):
            self._path.mkdir(parents=True, exist_ok=True)
            sums = {}
            for name in list(files):
                path = self._path / name
                save_file(files.pop(name), path)  # which frees the copies
                path.chmod(self._path.stat().st_mode & 0o666)  # safetensors (0.8) makes files private
                sync(path)
                sums[name] = sha256(path)
            return sums

    def done(self) -> bool:
        """Whether the files of this process are written, or could not be written."""
        return self._sums.done()

    def sums(self) -> dict[str, str]:
        """The checksums of the files of this process, by name, when they are written.

        Raises:
            WriteError: they cannot be written.
        """
        return self._sums.result()

    def complete(self, sums: Mapping[str, str]) -> Path:
        """Add the state and the checksums of all files, and give the checkpoint its name.

        Raises:
            WriteError: the file system is full, or does not show the files of other processes.
        """
        with writing(self._target):
            unseen = [name for name in sums if not (self._path / name).is_file()]
            if unseen:
                raise WriteError(f"{self._target}: does not have {unseen[0]}; all machines must share the --out folder")
            text = json.dumps({**self._state, "sha256": {**sums, STATE: _state_sum(self._state)}}, indent=1)
            (self._path / STATE).write_text(text, encoding="utf-8")
            sync(self._path / STATE)
            sync(self._path)
            shutil.rmtree(self._target, ignore_errors=True)
            self._path.rename(self._target)
            sync(self._target.parent)
        return self._target


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


class StoredTensors(Mapping[str, Tensor]):
    """The tensors in some files, by name, read on demand; a tensor in several files is joined by rows."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._files: dict[str, list[Any]] = {}
        for path in paths:
            file: Any = safe_open(path, "pt")
            for name in file.keys():  # noqa: SIM118 - the file is no mapping
                self._files.setdefault(name, []).append(file)

    def __getitem__(self, name: str) -> Tensor:
        parts = [file.get_tensor(name) for file in self._files[name]]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def has_rows(self, name: str) -> bool:
        """Whether a tensor is not a scalar."""
        return bool(self._files[name][0].get_slice(name).get_shape())

    def rows(self, name: str, first: int, count: int) -> Tensor:
        """Rows `first` to `first + count` of a tensor; only these are read."""
        parts = []
        for file in self._files[name]:
            part = file.get_slice(name)
            length = part.get_shape()[0]
            parts.append(part[max(0, min(first, length)) : max(0, min(first + count, length))])
            first -= length
        return torch.cat(parts)


@dataclass(frozen=True)
class StoredCheckpoint:
    """A checkpoint on disk."""

    model: StoredTensors
    training: StoredTensors
    state: Mapping[str, Any]


def open_checkpoint(path: Path, state: Mapping[str, Any]) -> StoredCheckpoint:
    """A verified checkpoint, with its state; its tensors are read on demand.

    Raises:
        ValueError: a file is damaged.
    """
    try:
        files = [file for file in sorted(path.iterdir()) if PART.fullmatch(file.name)]
        model, training = (
            StoredTensors(file for file in files if file.name.startswith(kind)) for kind in (MODEL, TRAINING)
        )
        return StoredCheckpoint(model, training, state)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path}: {type(error).__name__}: {error}") from None


def load_checkpoint(path: Path) -> StoredCheckpoint:
    """Verify and open a checkpoint; ValueError if it is damaged."""
    return open_checkpoint(path, verify_checkpoint(path))


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
        except UserError:
            raise
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
    """All checkpoints, oldest first; folders with other names, such as a copy by the user, are not ours."""
    named = (path for path in folder.glob("step-*") if NAME.fullmatch(path.name))
    return sorted(filter(Path.is_dir, named), key=saved_step)


def remove_old(folder: Path, keep_last: int) -> None:
    """Delete all but the newest `keep_last` checkpoints, drafts left by a crash, and the `STARTED` marker."""
    (folder / STARTED).unlink(missing_ok=True)
    for path in checkpoint_paths(folder)[:-keep_last]:
        remove_checkpoint(path)
    remove_drafts(folder)


def remove_checkpoint(path: Path) -> None:
    """Delete a checkpoint; of one that was moved elsewhere, only the link to it."""
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path)


def remove_drafts(folder: Path) -> None:
    """Delete checkpoints that are incomplete, because of a crash or a full disk."""
    for draft in folder.glob(".step-*"):
        if DRAFT.fullmatch(draft.name):
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


def saved_step(checkpoint: Path) -> int:
    """The inverse of `step_name`."""
    return int(checkpoint.name.removeprefix("step-"))


def file_name(kind: str, rank: int, size: int) -> str:
    """
    >>> file_name("model", 0, 1), file_name("model", 1, 4)
    ('model.safetensors', 'model-00002-of-00004.safetensors')
    """
    return f"{kind}-{rank + 1:05d}-of-{size:05d}.safetensors" if size > 1 else f"{kind}.safetensors"


def copies_on_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies on the CPU with separate storage, as safetensors requires."""
    return {name: value.detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()}


def _state_sum(state: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

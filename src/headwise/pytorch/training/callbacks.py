"""Callbacks: what other programs learn about a running training.

The trainer reports four events. Callbacks get copies of the figures, never the network, and the random state of
training is kept, so a run has the same result with and without them. See `trackers.py` for the callbacks for
TensorBoard, Weights & Biases and MLflow.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True)
class TrainingStart:
    """The state of a run before the first update."""

    folder: Path  # the model folder
    config: Mapping[str, Any]  # all settings, as {"train": {"max_steps": ...}, ...}
    n_parameters: int
    step: int  # updates done before; more than 0 if the run is resumed


class Callback:
    """Receives the events of a training run; override the methods that you need.

    An exception in a callback ends the training, which can be resumed from its last checkpoint. With `devices` above 1
    a callback is pickled and called in the first process only.

    >>> class BestLoss(Callback):
    ...     def on_start(self, start: TrainingStart) -> None:
    ...         self.losses: list[float] = []
    ...
    ...     def on_validation(self, record: dict[str, Any]) -> None:
    ...         self.losses.append(record["loss"])
    ...
    ...     def on_end(self, reason: str) -> None:
    ...         print(f"{reason}: best validation loss {min(self.losses):.2f}")
    >>> headwise.train(["train.tsv"], ["5%"], "runs/mine", callbacks=[BestLoss()])  # doctest: +SKIP
    finished: best validation loss 1.83
    """

    def on_start(self, start: TrainingStart) -> None:
        """Training begins or is resumed."""

    def on_log(self, record: dict[str, Any]) -> None:
        """`train.log_every` updates are done; the record of `metrics.jsonl`: means over these updates.

        Its keys are "step", "loss" (None if no update had a finite loss), "learning_rate", "gradient_norm" (of the last
        update, before clipping), "tokens_per_second", "epoch" and more.
        """

    def on_validation(self, record: dict[str, Any]) -> None:
        """A validation is done; the record of `validation.jsonl`.

        Its keys are "step", "loss", the other metrics of the task, "best", and for tasks that write text "sample": the
        "source", "output" and "reference" of the first validation text.
        """

    def on_end(self, reason: str) -> None:
        """Training ends: "finished", "patience", the name of a signal such as "SIGINT", or "error"."""


class Callbacks:
    """Calls several callbacks.

    Args:
        device: whose random state is kept, beside that of the CPU.
    """

    def __init__(self, callbacks: Sequence[Callback], device: torch.device) -> None:
        self._callbacks = callbacks
        self._started: list[Callback] = []
        self._devices = [device] if device.type == "cuda" else []

    def start(self, start: TrainingStart) -> None:
        """Report that training begins."""
        for callback in self._callbacks:
            with self._random_state_kept():
                callback.on_start(deepcopy(start))
            self._started.append(callback)

    def log(self, record: Mapping[str, Any]) -> None:
        """Report an interval of training."""
        self._call(lambda callback: callback.on_log(deepcopy({**record})))

    def validation(self, record: Mapping[str, Any]) -> None:
        """Report a validation."""
        self._call(lambda callback: callback.on_validation(deepcopy({**record})))

    def end(self, reason: str) -> None:
        """Report that training ends."""
        self._call(lambda callback: callback.on_end(reason))

    def _call(self, event: Callable[[Callback], None]) -> None:
        for callback in self._started:
            with self._random_state_kept():
                event(callback)

    def _random_state_kept(self) -> AbstractContextManager[None]:
        return torch.random.fork_rng(self._devices)

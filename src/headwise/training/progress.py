"""The counters of a training run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Progress:
    """Counters of a run, as in a checkpoint's `state.json`."""

    step: int = 0
    data: dict[str, Any] = field(default_factory=dict)  # position of the stream
    objective: float = 0.0  # sums since the last logged line
    figures: dict[str, float] = field(default_factory=dict)  # sums of `Loss.figures` since then
    targets: int = 0
    gradient_norm: float = 0.0  # of the last update with a finite one, before clipping
    skipped: int = 0  # updates skipped for a loss or gradient that was not finite
    skipped_in_a_row: int = 0
    best: float | None = None  # best validation metric, lower is better
    best_loss: float = 0.0  # its loss, which breaks ties
    validations_since_best: int = 0
    validation_due: bool = False  # the validation of this step was interrupted by a signal
    kept: str = ""  # which model the folder has, such as "step 450"
    kept_figures: dict[str, float] = field(default_factory=dict)  # its validation metrics
    elapsed: float = 0.0  # seconds of training including validation, over all sessions

    @property
    def is_validated(self) -> bool:
        return self.best is not None or self.validations_since_best > 0

    def add(self, objective: float, figures: Mapping[str, float], n_targets: int, norm: float) -> None:
        """Count an update that was not skipped."""
        self.skipped_in_a_row = 0
        self.gradient_norm = norm
        self.objective += objective
        self.targets += n_targets
        for name, figure in figures.items():
            self.figures[name] = self.figures.get(name, 0.0) + figure

    def restart_interval(self) -> None:
        """Forget the sums, which are logged."""
        self.objective, self.figures, self.targets = 0.0, {}, 0


def with_other_batches(position: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """The position of a stream when an epoch has `factor` times the batches: about as much of the epoch is done.

    >>> with_other_batches({"epoch": 2, "position": 10, "offset": 3}, 2.0)
    {'epoch': 2, 'position': 20, 'offset': 0}
    >>> with_other_batches({"epoch": 2, "units": 9, "lanes": [[20, 4096, 10, 3]]}, 2.0)
    {'epoch': 2, 'units': 9, 'lanes': [[20, 4096, 20, 0]]}
    """
    if factor == 1:
        return dict(position)
    if "lanes" in position:  # `streamed_pairs.StreamCursor`
        lanes = [[unit, record, round(done * factor), 0] for unit, record, done, _ in position["lanes"]]
        return {**position, "lanes": lanes}
    counts = {"epoch": 1.0, "offset": 0.0}  # the batches of a window that is batched again have no counterpart
    return {name: round(value * counts.get(name, factor)) for name, value in position.items()}

"""Training (section 5), in one loop.

    batches -> loss -> gradients -> norm -> a step at the rate of equation 3 -> log, validate, save, stop

`train` is the loop, and `update` one pass through its first line. They know neither tasks nor architectures: an
objective is a function from a batch to its loss. What a product needs is attached through `Hooks`, whose methods are
called where a reader expects them. Those of the class itself are what one process needs that computes in full
precision; `pytorch.training.trainer` adds mixed precision, logs, validation, checkpoints, moving averages, signals and
work that a GPU defers, and `pytorch.training.parallel` several processes.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.config.training import TrainConfig
from headwise.core.batches import TrainingBatch
from headwise.core.loss import Loss
from headwise.core.optimizer import Optimizer, clip_gradients, gradient_norm, learning_rate

Objective = Callable[[Any], Loss]  # from a batch of some kind


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

    def skip(self) -> None:
        """Count an update whose loss or gradient was not finite."""
        self.skipped += 1
        self.skipped_in_a_row += 1

    def restart_interval(self) -> None:
        """Forget the sums, which are logged."""
        self.objective, self.figures, self.targets = 0.0, {}, 0

    def ends(self, config: TrainConfig) -> bool:
        """Whether the last step or the last of `config.patience` validations without a better model is done."""
        return self.step >= config.max_steps or 0 < config.patience <= self.validations_since_best


@dataclass
class Run:
    """A model, and what trains it."""

    model: nn.Module
    objective: Objective  # its value per target is minimised
    optimizer: Optimizer
    batches: Iterator[TrainingBatch]  # endless
    config: TrainConfig
    peak: float  # the highest learning rate (`schedule.peak_learning_rate`)
    device: torch.device
    progress: Progress = field(default_factory=Progress)
    latest: Sequence[TrainingBatch] = ()  # of the latest update


@dataclass
class Update:
    """The gradients of an update are computed; this is what is known of them."""

    sums: Float[Tensor, " sums"]  # over targets, float64: the objective, and `figures`
    figures: Sequence[str]  # names of the others
    n_targets: int
    norm: Float[Tensor, ""]  # of all gradients
    rate: float  # learning rate


class Hooks:
    """What surrounds the loop. Each method is called where its name says; override those that you need."""

    def precision(self, run: Run) -> AbstractContextManager[Any]:
        """Around the forward pass of a batch."""
        return nullcontext()

    def divisor(self, n_targets: int) -> int:
        """The divisor of the objective of a batch, by default the targets of the update."""
        return n_targets

    def gradient_norm(self, run: Run) -> Float[Tensor, ""]:
        """The norm of all gradients of an update."""
        return gradient_norm(run.model)

    def step(self, run: Run, update: Update) -> None:
        """Change the parameters, unless the loss or the gradient is not finite."""
        objective, *figures = update.sums.tolist()
        if not (math.isfinite(objective) and bool(update.norm.isfinite())):
            return run.progress.skip()
        named = dict(zip(update.figures, figures, strict=True))
        run.progress.add(objective, named, update.n_targets, float(update.norm))
        if run.config.clip_norm:
            clip_gradients(run.model, update.norm, run.config.clip_norm)
        run.optimizer.step(update.rate)

    def updated(self, run: Run, batches: Sequence[TrainingBatch]) -> None:
        """After every update; may replace `run.config` by one with another number of updates."""

    def log(self, run: Run) -> None:
        """Every `log_every` updates."""
        run.progress.restart_interval()

    def validate(self, run: Run) -> None:
        """Every `validate_every` updates, and after the last one; clears `validation_due` when it is done."""
        run.progress.validation_due = False

    def save(self, run: Run, last: bool) -> None:
        """Every `checkpoint_every` updates, and when training ends."""

    def stops(self, run: Run) -> bool:
        """Whether somebody wants training to end now."""
        return False


def train(run: Run, hooks: Hooks) -> None:
    """Train until the last step, until patience ends, or until a hook stops it; `run.progress` says where it is.

    With `validation_due` it begins with the validation that was interrupted.
    """
    config, progress = run.config, run.progress
    while progress.validation_due or not progress.ends(config):
        if not progress.validation_due:
            batches = [next(run.batches) for _ in range(config.accumulate)]
            update(run, batches, hooks)
            hooks.updated(run, batches)
            config = run.config
            if progress.step % config.log_every == 0:
                hooks.log(run)
            progress.validation_due = progress.step % config.validate_every == 0 or progress.step == config.max_steps
        if progress.validation_due:
            hooks.validate(run)
        stopped = hooks.stops(run)
        last = stopped or progress.ends(config)
        if last or progress.step % config.checkpoint_every == 0:
            hooks.save(run, last)
        if stopped:
            break


def update(run: Run, batches: Sequence[TrainingBatch], hooks: Hooks) -> None:
    """One update from the gradients of some batches, added up (gradient accumulation)."""
    run.latest, n_targets = batches, sum(batch.n_targets for batch in batches)
    run.model.train()
    run.model.zero_grad(set_to_none=True)
    sums: list[Tensor] = []
    figures: list[str] = []
    for batch in batches:
        with hooks.precision(run):
            loss = run.objective(batch.to(run.device))
        (loss.objective / hooks.divisor(n_targets)).backward()
        figures = list(loss.figures)
        sums.append(torch.stack([loss.objective.detach(), *loss.figures.values()]))
    run.progress.step += 1
    rate = learning_rate(run.progress.step, run.peak, run.config)
    hooks.step(run, Update(torch.stack(sums).double().sum(0), figures, n_targets, hooks.gradient_norm(run), rate))

"""What surrounds the training loop of `core.train` in a run: logs, validation, checkpoints, signals, errors.

The state of a run is the model's parameters, the optimizer's moments, `Progress` and the random state: together a
checkpoint. On a CPU a resumed run is bit-identical to an uninterrupted one.
"""

import math
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from headwise.config.settings import RunConfig, meaningful
from headwise.core.batches import Stream, TrainingBatch
from headwise.core.build import count_parameters
from headwise.core.loss import Loss
from headwise.core.optimizer import (
    clip_gradients,
    is_nearly_constant,
    learning_rate,
    make_optimizer,
    peak_learning_rate,
)
from headwise.core.train import Hooks, Objective, Progress, Run, Update, train
from headwise.device import capability_of, trains_in_bfloat16
from headwise.errors import NonFiniteError, WriteError
from headwise.pytorch.search.captured import without_captures
from headwise.pytorch.training.callbacks import Callback, Callbacks, TrainingStart
from headwise.pytorch.training.checkpoint import (
    CHECKPOINTS,
    Checkpoint,
    average_parameters,
    checkpoint_paths,
    newest_undamaged,
    saved_step,
)
from headwise.pytorch.training.deferred import UpdateSums, can_defer, step_if_finite
from headwise.pytorch.training.divergence import MAX_SKIPPED_IN_A_ROW, diverged_error, resources_error
from headwise.pytorch.training.metrics import Clock, MetricsLog, Terminal
from headwise.pytorch.training.minutes import TimePlan
from headwise.pytorch.training.saver import CheckpointSaver
from headwise.pytorch.training.utilisation import device_peak, operations_of
from headwise.pytorch.training.validation import Outputs, Sampling, Shard, Validation, ValidationDeferred, cost

Export = Callable[[Mapping[str, Tensor], Mapping[str, float], str], None]


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


class Trainer(Hooks):
    """Trains `model`, which is on `device`, until the last step, patience or a signal ends the run.

    Args:
        objective: its value per target is minimised.
        validation: evaluates `model`; its metrics are "loss" and perhaps others, such as `train.best_metric`.
        export: called as `export(parameters, metrics, description)` for every new best model.
        folder: for logs and checkpoints.
        baseline: metrics of guessing. Until a model is better than one of them, every model is exported.
        callbacks: get the events of the run; an exception in one of them ends it.
        compared: what to compare the model with, shown once after the first validation.
    """

    def __init__(
        self,
        model: nn.Module,
        config: RunConfig,
        objective: Objective,
        open_stream: Callable[[dict[str, int] | None], Stream],
        validation: Validation,
        export: Export,
        folder: Path,
        device: torch.device,
        show: bool = True,
        baseline: Mapping[str, float] = {},
        callbacks: Sequence[Callback] = (),
        compared: str = "",
    ) -> None:
        self.model = model
        self.config = config
        self.device = device
        self.validation = validation
        self.export = export
        self.folder = folder
        self.progress = Progress()
        self.optimizer = make_optimizer(model, config.train)
        self.average = {k: v.clone() for k, v in self._parameters().items()} if config.train.ema else {}
        self._open_stream = open_stream
        if config.train.recompute:
            recompute_layers(model)
        self._objective = objective
        self.in_half = trains_in_bfloat16(config.train.precision, capability_of(str(device)))
        self._defers = can_defer(device, config.train)
        self._deferred: UpdateSums | None = None  # to be counted
        self._peak = peak_learning_rate(config.train, config.model.d_model)
        self._stop_signal = ""
        self._validating = False
        self._shard = Shard()  # of the validation items
        self._run: Run | None = None
        self._plan: TimePlan | None = None  # for `train.minutes`
        self._stopped = False
        self._show = show
        self._baseline, self._compared = baseline, compared
        self._callbacks = Callbacks(callbacks, device)
        self.saver = CheckpointSaver(folder / CHECKPOINTS, max(config.train.keep_last, config.train.average))

    def run(self, started: float | None = None) -> str:
        """Train from `progress` on; returns "finished", "patience" or the name of the signal that ended the run.

        `started` is when this session began, by `time.monotonic`: `train.minutes` count from there on.
        """
        self._log = self._open_log()
        stream = self._open_stream(self.progress.data or None)
        train = self.config.train
        self.terminal = Terminal(None if train.minutes else train.max_steps, self.progress.step, self._show)
        reason = "error"
        repeatable = deterministic(train.deterministic)
        with closing(self.terminal), self._signals(), without_captures(), repeatable:
            try:
                self._callbacks.start(self._start())
                counted = started if train.minutes and started is not None else time.monotonic()
                self._began = counted - self.progress.elapsed
                reason = self._loop(stream)
                if not self._stop_signal:
                    reason = self._finish() or reason
            except (torch.OutOfMemoryError, MemoryError, RuntimeError, WriteError) as error:
                raise self._as_user_error(error) from error
            finally:
                stream.close()
                self.saver.leave()
                self._callbacks.end(reason)
        return reason

    def _start(self) -> TrainingStart:
        return TrainingStart(self.folder, meaningful(self.config), count_parameters(self.model), self.progress.step)

    def _loop(self, stream: Stream) -> str:
        progress, config = self.progress, self.config.train
        if config.minutes:
            self._plan = TimePlan(config, progress.step, self._shared_elapsed())
            config = self._plan.before()
            if progress.step >= config.max_steps:
                self.terminal.say("the minutes of this run are over; --minutes with a larger number continues it")
        self._stream, self._first = stream, progress.step + 1
        padded = config.batching != "random" or self.device.type != "cpu"  # see `pytorch.data.batching`
        peak = device_peak(self.device) if self.in_half else None
        self._clock = Clock(stream, padded, operations_of(self.model), peak)
        if progress.step >= config.max_steps and not progress.is_validated:  # resumed with fewer steps
            progress.validation_due = True

        def objective(batch: Any) -> Loss:  # which may be another one after the first update
            return self._objective(batch)

        run = Run(self.model, objective, self.optimizer, iter(stream), config, self._peak, self.device, progress)
        self._run = run
        train(run, self)
        return self._stop_signal or ("patience" if progress.step < run.config.max_steps else "finished")

    # The hooks of the loop

    def precision(self, run: Run) -> AbstractContextManager[Any]:
        """Mixed precision, if the run has it."""
        return self._autocast()

    def step(self, run: Run, update: Update) -> None:
        """Change the parameters if all numbers are finite; without waiting for the numbers if updates are deferred."""
        numbers = torch.cat([update.sums, update.norm.double()[None]])
        numbers = numbers if self._defers else numbers.cpu()
        sums = UpdateSums(numbers, update.figures, run.progress.step, update.n_targets)
        if self._defers:
            step_if_finite(self.optimizer, update.sums[0], update.norm, update.rate, run.config.clip_norm)
            self._count_deferred()
            self._deferred = sums
        elif self._count(sums):
            norm = self._divide_gradients(update.norm, sums.n_targets)
            if run.config.clip_norm:
                clip_gradients(self.model, norm, run.config.clip_norm)
            self.optimizer.step(update.rate)
            self._advance_average()

    def updated(self, run: Run, batches: Sequence[TrainingBatch]) -> None:
        """Name a checkpoint that is written, and show the progress."""
        self._clock.count(batches)
        if self.saver.is_written() and not self._skipping():  # an update has shown that it is good
            self.saver.finish()
        self.progress.data = self._stream.state()
        self.terminal.step()
        if self._plan:
            self._follow(self._plan, run)
        if self.progress.step == self._first and self.progress.step % run.config.log_every:
            self.terminal.interval(self._record(run))  # an early estimate of the remaining time

    def log(self, run: Run) -> None:
        """Write and show the interval."""
        record = self._record(run)
        self.progress.restart_interval()
        self._clock.restart()
        self._log.training(record)
        self.terminal.interval(record)
        self._callbacks.log(record)

    def validate(self, run: Run) -> None:
        """Validate, unless a signal has come; the resumed run then does so."""
        if self._stop_signal:
            return
        before = self._shared_elapsed() if self._plan else 0.0
        self._validate()
        if self._plan:
            self._plan.validated(self._shared_elapsed() - before)

    def _follow(self, plan: TimePlan, run: Run) -> None:
        """Plan the rest of the run if it is time to."""
        is_first = not plan.update
        planned = plan.after(run.config, self.progress.step, self._shared_elapsed())
        if planned is not run.config:
            run.config = planned
            self.terminal.plan(planned.max_steps)
            if is_first:
                self.terminal.say(plan.described(planned))

    def _shared_elapsed(self) -> float:
        """The time by which all processes plan."""
        return self._elapsed()

    def stops(self, run: Run) -> bool:
        """Whether a signal ends the run here; not after an update that was skipped."""
        self._stopped = bool(self._stop_signal) and (self.progress.validation_due or not self._skipping())
        return self._stopped

    def save(self, run: Run, last: bool) -> None:
        """Start writing a checkpoint; the last one is complete afterwards."""
        if self._stopped and not self.progress.is_validated:
            self._keep_unvalidated()
        if not self._skipping():
            self._save()
        if last:
            self.saver.finish()

    def _count_deferred(self) -> None:
        """Count the latest update, if that is still to be done."""
        sums, self._deferred = self._deferred, None
        if sums:
            self._count(sums)

    def _count(self, sums: UpdateSums) -> bool:
        """Add an update to `progress`; whether it is finite, otherwise it is skipped."""
        *own, norm = sums.read()
        (objective, *figures, n_targets), norm = self._sum_over_ranks([*own, float(sums.n_targets)], norm)
        sums.n_targets = int(n_targets)
        if not (math.isfinite(objective) and math.isfinite(norm)):
            self._skip(sums.step, objective)
            return False
        self.progress.add(objective, dict(zip(sums.names, figures, strict=True)), sums.n_targets, norm)
        return True

    def _sum_over_ranks(self, sums: list[float], norm: float) -> tuple[list[float], float]:
        """Sums over all processes that train this model, and the norm of their gradients; here it is only one."""
        return sums, norm

    def _divide_gradients(self, norm: Tensor, n_targets: int) -> Tensor:
        """Divide gradients by what the objectives were not divided by, here nothing; returns their norm."""
        return norm

    def _advance_average(self) -> None:
        if decay := self.config.train.ema:
            own = self._parameters()
            torch._foreach_lerp_([self.average[k] for k in own], list(own.values()), 1 - decay)

    def _skip(self, step: int, objective: float) -> None:
        progress = self.progress
        progress.skip()
        if progress.skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW:
            what = "gradient" if math.isfinite(objective) else "loss"
            raise self._diverged(step, f"the {what} has not been finite for {MAX_SKIPPED_IN_A_ROW} updates")

    def _skipping(self) -> bool:
        """Whether the latest update was skipped, so that nobody knows yet whether the parameters are good."""
        self._count_deferred()
        return self.progress.skipped_in_a_row > 0

    def _diverged(self, step: int, what: str) -> NonFiniteError:
        """The error for parameters that give numbers that are not finite; deletes checkpoints with these parameters."""
        changed = step - self.progress.skipped_in_a_row  # by this update
        return diverged_error(step, what, self._peak, self.saver.discard(changed), changed)

    def _open_log(self) -> MetricsLog:
        return MetricsLog(self.folder, self.progress.step)

    def _record(self, run: Run) -> dict[str, Any]:
        """The log record of the interval."""
        self._count_deferred()
        train, progress = run.config, self.progress
        targets = progress.targets  # 0 if no update of the interval was finite
        means = {name: figure / targets for name, figure in progress.figures.items()} if targets else {}
        if "nll" in means:
            means["perplexity"] = math.exp(min(means["nll"], 700.0))
        return {
            "step": progress.step,
            "loss": progress.objective / targets if targets else None,
            **means,
            "learning_rate": learning_rate(progress.step, self._peak, train),
            "gradient_norm": progress.gradient_norm if targets else None,
            "epoch": progress.data["epoch"],
            "skipped": progress.skipped,
            **self._clock.figures(train.max_steps - progress.step),
            **({"seconds_left": max(0.0, 60 * train.minutes - self._elapsed())} if train.minutes else {}),
            "elapsed": self._elapsed(),
        }

    def _validate(self) -> None:
        """Validate; after a signal, leave it to the resumed run."""
        progress = self.progress
        try:
            with self._moving_average():
                better = self._evaluate_candidate(f"step {progress.step}")
        except ValidationDeferred:
            return
        except NonFiniteError as error:
            self._count_deferred()
            what = "the score of a validation text has not been finite, so the training has diverged"
            raise self._diverged(progress.step, what) from error
        progress.validation_due = False
        progress.validations_since_best = 0 if better else progress.validations_since_best + 1

    def _finish(self) -> str:
        """Section 6.1: evaluate the average of the last checkpoints, unless there is a moving average.

        The rate must be nearly constant: while it falls, models improve, and their average is worse than the last.
        Returns the name of a signal that interrupted it, or "".
        """
        assert self._run
        train, last = self._run.config, self.progress.step
        paths = checkpoint_paths(self.folder / CHECKPOINTS)[-train.average :]
        paths = [path for path in paths if is_nearly_constant(saved_step(path), last, train)]
        if self.average or len(paths) < 2:
            return ""
        try:
            mean = average_parameters(self._load_parameters(path) for path in paths)
        except ValueError as error:  # damaged; the best model is already exported
            self.terminal.say(f"the last checkpoints are not averaged: {error}")
            return ""
        _copy(mean, self._parameters())
        try:
            self._evaluate_candidate(f"average of {len(paths)} checkpoints, {paths[0].name} to {paths[-1].name}")
        except ValidationDeferred:
            return self._stop_signal
        return ""

    def _load_parameters(self, checkpoint: Path) -> Mapping[str, Tensor]:
        stored = self.saver.load(checkpoint).model
        return {name: self.saver.own_part(stored, name, own) for name, own in self._parameters().items()}

    def _evaluate_candidate(self, what: str) -> bool:
        """Validate the current model and export it if it is the best so far."""
        progress, metric = self.progress, self.config.train.best_metric
        started = time.monotonic()
        if self._run:
            self._run.latest = ()  # no batch of an update is computed
        self.model.eval()
        outputs = self._outputs(self.model)
        figures = self.validation.figures(outputs)
        sample = self.validation.sample(outputs) if isinstance(self.validation, Sampling) else None
        value, loss = cost(figures, metric if metric in figures else "loss"), figures["loss"]
        if progress.best is None:
            better = self._beats_baseline(figures)
        else:
            better = (value, loss) < (progress.best, progress.best_loss)
        finite = math.isfinite(value) and math.isfinite(loss)
        better = better and finite
        if better:
            progress.best, progress.best_loss = value, loss
        verdict = "best so far" if better else "no better than guessing" if progress.best is None else ""
        if better or (progress.best is None and finite):
            self._keep(figures, what if better else f"{what}, {verdict}")
        times = {"seconds": round(time.monotonic() - started, 3), "elapsed": self._elapsed()}
        record = {"step": progress.step, "what": what, **figures, "best": better, **times}
        record |= {"sample": sample._asdict()} if sample else {}
        self._log.validation(record)
        shown = ", ".join(f"{name} {figure:.4g}" for name, figure in figures.items())
        self.terminal.say(f"{what}: validation {shown}{f' ({verdict})' if verdict else ''}")
        if self._compared:
            self.terminal.say(self._compared)
            self._compared = ""
        if sample:
            self.terminal.say(str(sample))
        self._callbacks.validation(record)
        return better

    def _keep(self, figures: Mapping[str, float], what: str) -> None:
        """Export the current model, which is then the one in the folder."""
        self.progress.kept, self.progress.kept_figures = what, {**figures}
        self.export(self._parameters(), figures, what)

    def _keep_unvalidated(self) -> None:
        """Export the current model, because a signal ends the run before the first validation."""
        with self._moving_average():
            self._gather_parameters()
            self._keep({}, f"step {self.progress.step}, not validated")

    def _gather_parameters(self) -> None:
        """Collect the parameters for `export`; here this process has all."""

    def _beats_baseline(self, figures: Mapping[str, float]) -> bool:
        """Whether any metric is better: accuracy may be good while overconfident errors make the loss bad."""
        known = [name for name in self._baseline if name in figures]
        return not known or any(cost(figures, name) < cost(self._baseline, name) for name in known)

    def _elapsed(self) -> float:
        return round(time.monotonic() - self._began, 3)

    def _outputs(self, model: nn.Module) -> Outputs:
        """The outputs of a validation of `model`.

        Raises:
            ValidationDeferred: interrupted by a signal.
        """
        try:
            self._validating = True
            with self._autocast():
                return self.validation.outputs(model, self.device, self._shard)
        finally:
            self._validating = False

    def _parameters(self) -> dict[str, Tensor]:
        return {name: p.detach() for name, p in self.model.named_parameters() if p.requires_grad}

    @contextmanager
    def _moving_average(self) -> Iterator[None]:
        """Inside, the model has the moving average of its parameters, if there is one."""
        if not self.average:
            yield
            return
        own = self._parameters()
        kept = {name: value.clone() for name, value in own.items()}
        _copy(self.average, own)
        try:
            yield
        finally:
            _copy(kept, own)

    def _autocast(self) -> AbstractContextManager[Any]:
        """Mixed precision: products are bfloat16; parameters and the sums of the loss stay float32."""
        return torch.autocast(self.device.type, torch.bfloat16) if self.in_half else nullcontext()

    # Checkpoints

    def _save(self) -> None:
        self._count_deferred()
        training = self.optimizer.tensors(self.model)
        training |= {f"ema.{name}": value for name, value in self.average.items()}
        training["random.cpu"] = torch.get_rng_state()
        if self.device.type == "cuda":
            training["random.cuda"] = torch.cuda.get_rng_state(self.device)
        self.progress.elapsed = self._elapsed()
        made_by = {"threads": torch.get_num_threads(), "torch": torch.__version__}
        state = {**asdict(self.progress), "tokens_per_batch": self.config.train.tokens_per_batch, **made_by}
        self.saver.start(Checkpoint(self._parameters(), training, state))

    def restore(self, warn: Callable[[str], None]) -> bool:
        """Restore the newest undamaged checkpoint; False if there are none, `UserError` if all are damaged."""
        checkpoint = newest_undamaged(self.saver.folder, self.saver.load, warn)
        if checkpoint is None:
            return False
        state, own = checkpoint.state, self._parameters()
        self.progress = Progress(**{name: state[name] for name in asdict(Progress()) if name in state})
        tokens = self.config.train.tokens_per_batch
        self.progress.data = with_other_batches(self.progress.data, state.get("tokens_per_batch", tokens) / tokens)
        _copy({name: self.saver.own_part(checkpoint.model, name, value) for name, value in own.items()}, own)
        of = {name: name.partition(".")[2] for name in checkpoint.training}  # "exp_avg.NAME", "ema.NAME", "random.cpu"
        moments = {
            name: self.saver.own_part(checkpoint.training, name, own[parameter])
            for name, parameter in of.items()
            if parameter in own
        }
        self.optimizer.restore(self.model, moments)
        _copy({name: moments[f"ema.{name}"] for name in self.average}, self.average)
        self._restore_random_state(checkpoint.training, state.get("ranks", 1))
        if (before := state.get("ranks", 1)) != self._shard.size:
            warn(f"resuming with {self._shard.size} ranks a run of {before}: rounding and dropout will differ")
        if (state["threads"], state["torch"]) != (torch.get_num_threads(), torch.__version__):
            warn(
                f"resuming with {torch.get_num_threads()} threads and torch {torch.__version__}, before "
                f"{state['threads']} and {state['torch']}: losses will agree closely, but not bit for bit"
            )
        return True

    def _restore_random_state(self, states: Mapping[str, Tensor], ranks: int) -> None:
        """Restore the random state from "random.cpu" and perhaps "random.cuda"; `ranks` processes saved them."""
        torch.set_rng_state(states["random.cpu"])
        if self.device.type == "cuda" and "random.cuda" in states:
            torch.cuda.set_rng_state(states["random.cuda"], self.device)

    # Signals and errors

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM end the run after the current update, or interrupt a validation; a second one aborts."""

        try:
            before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:  # not the main thread
            before = {}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._stop_signal:
            raise KeyboardInterrupt
        self._stop_signal = signal.Signals(number).name
        self._stop_after_step(self._stop_signal)

    def _stop_after_step(self, name: str) -> None:
        """Say that a signal ends the run, and interrupt a validation."""
        shown = "Ctrl-C" if name == "SIGINT" else name
        self.terminal.say(f"stopping ({shown}): saving a checkpoint after this step")
        if self._validating:
            self._validating = False
            raise ValidationDeferred

    def _as_user_error(self, error: BaseException) -> BaseException:
        """A `UserError` for exhausted memory or a full disk, or `error` itself."""
        latest = self._run.latest if self._run else ()
        step = self.progress.step
        where = f"{step + 1}: out of memory on a batch of {latest[-1].extent}" if latest else ""
        what = f"step {where or f'{step}: out of memory in a validation'}"
        checkpoints = checkpoint_paths(self.folder / CHECKPOINTS)
        return resources_error(error, what, self.config.train.tokens_per_batch, checkpoints) or error


def _copy(source: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, value in target.items():
            value.copy_(source[name])


@contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """A context manager in which torch uses deterministic algorithms, and warns where it has none.

    https://docs.pytorch.org/docs/stable/notes/randomness.html
    """
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    if wanted:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it when it is first used
        torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def recompute_layers(model: nn.Module) -> None:
    """Activation checkpointing (arXiv:1604.06174): less memory for a third more time.

    The layers of every stack (`nn.ModuleList`) are recomputed in the backward pass; only their inputs are stored.
    Dropout masks are the same, so gradients are bit-identical.
    """
    for stack in model.modules():
        if isinstance(stack, nn.ModuleList):
            for layer in stack:
                layer.forward = partial(_recomputed, layer.forward)


def _recomputed(forward: Callable[..., Any], *inputs: Any) -> Any:
    return checkpoint(forward, *inputs, use_reentrant=False) if torch.is_grad_enabled() else forward(*inputs)

"""The one training loop (section 5).

All its state is in three places: the model's parameters, the optimiser's moments, and `Progress`; together with the
random state they make a checkpoint, and a run resumed from one repeats the uninterrupted run bit for bit on a CPU.
What is learnt is an objective, a function from a batch to its loss: the trainer knows neither tasks nor architectures,
and no file but its own.
"""

import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from headwise.config.settings import RunConfig
from headwise.data.batch import Stream, TrainingBatch
from headwise.errors import UserError, WriteError
from headwise.training.checkpoint import (
    CHECKPOINTS,
    Checkpoint,
    average_parameters,
    checkpoint_paths,
    load_checkpoint,
    newest_whole,
    remove_old,
    save_checkpoint,
)
from headwise.training.metrics import Clock, MetricsLog, Terminal
from headwise.training.optimizer import clip_gradients, gradient_norm, make_optimizer
from headwise.training.recompute import recompute_layers
from headwise.training.schedule import learning_rate, peak_learning_rate
from headwise.training.step import Objective
from headwise.training.validation import Outputs, Shard, Validation, ValidationDeferred

MAX_SKIPPED_IN_A_ROW = 10  # updates without a finite loss and gradient before the run gives up


@dataclass
class Progress:
    """Counters of a run, as they stand in a checkpoint's `state.json`."""

    step: int = 0
    data: dict[str, int] = field(default_factory=dict)  # position of the stream
    objective: float = 0.0  # sums since the last logged line
    figures: dict[str, float] = field(default_factory=dict)  # those of `Loss`, the same
    targets: int = 0
    skipped: int = 0  # updates skipped for a loss or gradient that was not finite
    skipped_in_a_row: int = 0
    best: float | None = None  # best validation figure, lower is better
    best_loss: float = 0.0  # the loss that came with it: of equal figures the one with less is better
    validations_since_best: int = 0
    validation_due: bool = False  # that of this step was put off: the run was asked to end meanwhile
    elapsed: float = 0.0  # seconds of training, validations among them, in all sessions together


Export = Callable[[Mapping[str, Tensor], Mapping[str, float], str], None]


class Trainer:
    """Trains `model`, which is on `device`, on the stream until the steps, the patience or the user end it.

    `objective(batch)` is minimised per target of the batches, whatever a target is.
    `validation` judges `model` as it is then: `outputs` and `figures` are called in turn. Its figures are "loss" and
    perhaps others, one of which `train.best_metric` may name.
    `export(parameters, figures, what)` is given every model better than those before it, and says what it is.
    `baseline` has figures of guessing. Until a model surpasses one of them, no model is the best, and each is exported.
    Files go to `folder`.
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
        tensorboard: bool = False,
        baseline: Mapping[str, float] = {},
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
        self._peak = peak_learning_rate(config.train, config.model.d_model)
        self._stop_signal = ""
        self._validating = False
        self._shard = Shard()  # of what is validated on
        self.batches: list[TrainingBatch] = []  # of the latest update
        self._show = show
        self._tensorboard = tensorboard
        self._baseline = baseline

    def run(self) -> str:
        """Train from where `progress` stands; "finished", "patience" or the name of the signal that ended it."""
        self._began = time.monotonic() - self.progress.elapsed
        log = self._open_log()
        stream = self._open_stream(self.progress.data or None)
        self.terminal = Terminal(self.config.train.max_steps, self.progress.step, self._show)
        with closing(self.terminal), self._signals():
            try:
                reason = self._loop(stream, log)
                if not self._stop_signal:
                    reason = self._finish(log) or reason
            except (torch.OutOfMemoryError, MemoryError, RuntimeError, WriteError) as error:
                raise self._explain(error) from error
            finally:
                stream.close()
                log.close()
        return reason

    def _loop(self, stream: Stream, log: MetricsLog) -> str:
        train, progress = self.config.train, self.progress
        batches = iter(stream)
        padded = train.batching != "random" or self.device.type != "cpu"  # see `data.batching`
        clock, first = Clock(stream, padded), progress.step + 1
        while progress.validation_due or (progress.step < train.max_steps and not self._out_of_patience()):
            if not progress.validation_due:
                self.batches = [next(batches) for _ in range(train.accumulate)]
                self._update(self.batches, clock)
                progress.data = stream.state()
                self.terminal.step()
                if progress.step % train.log_every == 0:
                    self._log(log, clock)
                elif progress.step == first:  # nobody should have to wait for an interval to learn how long a run takes
                    self.terminal.interval(self._record(clock))
                validates = progress.step % train.validate_every == 0 or progress.step == train.max_steps
                progress.validation_due = validates
            if progress.validation_due and not self._stop_signal:
                self._validate(log)
            last = self._out_of_patience() or progress.step == train.max_steps or bool(self._stop_signal)
            if last or progress.step % train.checkpoint_every == 0:
                self._save()
            if self._stop_signal:
                return self._stop_signal
        return "patience" if progress.step < train.max_steps else "finished"

    def _out_of_patience(self) -> bool:
        return 0 < self.config.train.patience <= self.progress.validations_since_best

    def _update(self, batches: list[TrainingBatch], clock: Clock) -> None:
        """One optimiser update from the gradients of `batches` together (gradient accumulation), if they are finite."""
        train, progress = self.config.train, self.progress
        n_targets = int(self._over_all([sum(float(batch.n_targets) for batch in batches)])[0])
        self.model.train()
        self.model.zero_grad(set_to_none=True)
        sums: list[Tensor] = []
        names: list[str] = []
        for batch in batches:
            with self._autocast():
                loss = self._objective(batch.to(self.device))
            (loss.objective / n_targets).backward()
            names = list(loss.figures)
            sums.append(torch.stack([loss.objective.detach(), *loss.figures.values()]))
        clock.count(batches)
        progress.step += 1
        norm = self._gradient_norm()
        own = torch.stack(sums).double().sum(0).tolist()  # here, and not before, a GPU is waited for
        objective, *figures = self._over_all(own)
        if not (math.isfinite(objective) and bool(norm.isfinite())):
            self._skip(objective)
            return
        if train.clip_norm:
            clip_gradients(self.model, norm, train.clip_norm)
        self.optimizer.step(learning_rate(progress.step, self._peak, train))
        self._advance_average()
        progress.skipped_in_a_row = 0
        progress.objective += objective
        progress.targets += n_targets
        for name, figure in zip(names, figures, strict=True):
            progress.figures[name] = progress.figures.get(name, 0.0) + figure

    def _over_all(self, sums: list[float]) -> list[float]:
        """Sums over all processes that train this model: here it is one."""
        return sums

    def _gradient_norm(self) -> Tensor:
        return gradient_norm(self.model)

    def _advance_average(self) -> None:
        if decay := self.config.train.ema:
            own = self._parameters()
            torch._foreach_lerp_([self.average[k] for k in own], list(own.values()), 1 - decay)

    def _skip(self, objective: float) -> None:
        progress = self.progress
        progress.skipped += 1
        progress.skipped_in_a_row += 1
        if progress.skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW:
            what = "gradient" if math.isfinite(objective) else "loss"
            good = [path.name for path in checkpoint_paths(self.folder / CHECKPOINTS)]
            raise UserError(
                f"step {progress.step}: the {what} has not been finite for {MAX_SKIPPED_IN_A_ROW} updates; lower "
                f"train.learning_rate (now {self._peak:g}), raise train.warmup_steps, set train.clip_norm=1 or use "
                f"model.norm_position=pre; the last good checkpoint is {good[-1] if good else 'none yet'}"
            )

    def _open_log(self) -> MetricsLog:
        return MetricsLog(self.folder, self.progress.step, self._tensorboard)

    def _log(self, log: MetricsLog, clock: Clock) -> None:
        progress, record = self.progress, self._record(clock)
        progress.objective, progress.figures, progress.targets = 0.0, {}, 0
        clock.restart()
        log.training(record)
        self.terminal.interval(record)

    def _record(self, clock: Clock) -> dict[str, Any]:
        """The figures of the interval so far."""
        train, progress = self.config.train, self.progress
        targets = progress.targets  # 0 where no update of the interval was finite: then there is no loss either
        means = {name: figure / targets for name, figure in progress.figures.items()} if targets else {}
        if "nll" in means:
            means["perplexity"] = math.exp(min(means["nll"], 700.0))
        return {
            "step": progress.step,
            "loss": progress.objective / targets if targets else None,
            **means,
            "learning_rate": learning_rate(progress.step, self._peak, train),
            "epoch": progress.data["epoch"],
            "skipped": progress.skipped,
            **clock.figures(train.max_steps - progress.step),
            "elapsed": self._elapsed(),
        }

    def _validate(self, log: MetricsLog) -> None:
        """Validate, or leave it to the run that goes on from here, if this one is to end."""
        progress = self.progress
        try:
            with self._averaged():
                better = self._try(log, f"step {progress.step}")
        except ValidationDeferred:
            return
        progress.validation_due = False
        progress.validations_since_best = 0 if better else progress.validations_since_best + 1

    def _finish(self, log: MetricsLog) -> str:
        """Section 6.1: the mean of the last checkpoints is a candidate too (a moving average has been one already).

        The name of the signal that came in between, if one did.
        """
        paths = checkpoint_paths(self.folder / CHECKPOINTS)[-self.config.train.average :]
        if self.average or len(paths) < 2:
            return ""
        try:
            mean = average_parameters(self._model_of(path) for path in paths)
        except ValueError as error:  # damaged since it was written; the best model is safe already
            self.terminal.say(f"the last checkpoints are not averaged: {error}")
            return ""
        _copy(mean, self._parameters())
        try:
            self._try(log, f"average of {len(paths)} checkpoints, {paths[0].name} to {paths[-1].name}")
        except ValidationDeferred:
            return self._stop_signal
        return ""

    def _model_of(self, checkpoint: Path) -> Mapping[str, Tensor]:
        return load_checkpoint(checkpoint).model

    def _try(self, log: MetricsLog, what: str) -> bool:
        """Validate the model as it stands and export it if it is the best so far."""
        progress, metric = self.progress, self.config.train.best_metric
        started = time.monotonic()
        self.model.eval()
        figures = self.validation.figures(self._outputs(self.model))
        value, loss = cost(figures, metric if metric in figures else "loss"), figures["loss"]
        if progress.best is None:
            better = self._surpasses_guessing(figures)
        else:
            better = (value, loss) < (progress.best, progress.best_loss)
        finite = math.isfinite(value) and math.isfinite(loss)
        better = better and finite
        if better:
            progress.best, progress.best_loss = value, loss
        verdict = "best so far" if better else "no better than guessing" if progress.best is None else ""
        if better or (progress.best is None and finite):
            self.export(self._parameters(), figures, what if better else f"{what}, {verdict}")
        times = {"seconds": round(time.monotonic() - started, 3), "elapsed": self._elapsed()}
        log.validation({"step": progress.step, "what": what, **figures, "best": better, **times})
        shown = ", ".join(f"{name} {figure:.4g}" for name, figure in figures.items())
        self.terminal.say(f"{what}: validation {shown}{f' ({verdict})' if verdict else ''}")
        return better

    def _surpasses_guessing(self, figures: Mapping[str, float]) -> bool:
        """By any figure: an accuracy may be good while the loss of overconfident mistakes is worse than a guess's."""
        known = [name for name in self._baseline if name in figures]
        return not known or any(cost(figures, name) < cost(self._baseline, name) for name in known)

    def _elapsed(self) -> float:
        return round(time.monotonic() - self._began, 3)

    def _outputs(self, model: nn.Module) -> Outputs:
        """The outputs of a validation of `model`.

        Raises:
            ValidationDeferred: a signal asked the run to end. Nothing has changed by then.
        """
        try:
            self._validating = True
            return self.validation.outputs(model, self.device, self._shard)
        finally:
            self._validating = False

    def _parameters(self) -> dict[str, Tensor]:
        return {name: p.detach() for name, p in self.model.named_parameters() if p.requires_grad}

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """Inside, the model has its moving average for parameters, if the run keeps one."""
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
        """Mixed precision: inside, products are in bfloat16; parameters and the sums of the loss stay in float32."""
        precision = self.config.train.precision
        if precision == "bf16" or (precision == "auto" and self.device.type == "cuda"):
            return torch.autocast(self.device.type, torch.bfloat16)
        return nullcontext()

    # Checkpoints

    def _save(self) -> None:
        training = self.optimizer.tensors(self.model)
        training |= {f"ema.{name}": value for name, value in self.average.items()}
        training["random.cpu"] = torch.get_rng_state()
        if self.device.type == "cuda":
            training["random.cuda"] = torch.cuda.get_rng_state(self.device)
        self.progress.elapsed = self._elapsed()
        state = {**asdict(self.progress), "threads": torch.get_num_threads(), "torch": torch.__version__}
        self._write(Checkpoint(self._parameters(), training, state))

    def _write(self, checkpoint: Checkpoint) -> None:
        folder = self.folder / CHECKPOINTS
        save_checkpoint(folder, checkpoint)
        remove_old(folder, max(self.config.train.keep_last, self.config.train.average))

    def restore(self, warn: Callable[[str], None]) -> bool:
        """Take up the newest whole checkpoint in `folder`; False if there are none, `UserError` if all are damaged."""
        checkpoint = newest_whole(self.folder / CHECKPOINTS, load_checkpoint, warn)
        if checkpoint is None:
            return False
        state = dict(checkpoint.state)
        self.progress = Progress(**{name: state[name] for name in asdict(Progress()) if name in state})
        _copy(checkpoint.model, self._parameters())
        self.optimizer.restore(self.model, checkpoint.training)
        for name, value in self.average.items():
            value.copy_(checkpoint.training[f"ema.{name}"])
        self._draw_as(checkpoint)
        if (state["threads"], state["torch"]) != (torch.get_num_threads(), torch.__version__):
            warn(
                f"resuming under {torch.get_num_threads()} threads and torch {torch.__version__} what ran under "
                f"{state['threads']} and {state['torch']}: losses will agree closely, not bit for bit"
            )
        return True

    def _draw_as(self, checkpoint: Checkpoint) -> None:
        torch.set_rng_state(checkpoint.training["random.cpu"])
        if self.device.type == "cuda" and "random.cuda" in checkpoint.training:
            torch.cuda.set_rng_state(checkpoint.training["random.cuda"], self.device)

    # The world outside

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM ask for an end after the update in progress, or in the middle of a validation, which the
        next run makes up for; a second one ends at once.
        """

        try:
            before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:  # not the main thread: whoever owns it handles signals
            before = {}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self._stop_signal:
            raise KeyboardInterrupt
        self._stop_signal = signal.Signals(number).name
        self.terminal.say(f"{self._stop_signal}: finishing this step and saving a checkpoint")
        if self._validating:
            self._validating = False
            raise ValidationDeferred

    def _explain(self, error: BaseException) -> BaseException:
        """A `UserError` for memory or a disk that is full, anything else as it is."""
        text = str(error)
        if isinstance(error, WriteError):
            good = [path.name for path in checkpoint_paths(self.folder / CHECKPOINTS)]
            return UserError(
                f"{text}, then go on with --resume; the last checkpoint is {good[-1] if good else 'none yet'}"
            )
        out_of_memory = isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in text
        if not out_of_memory:
            return error
        where = f"on a batch of {self.batches[-1].extent}" if self.batches else "in a validation"
        return UserError(
            f"step {self.progress.step + 1}: out of memory {where}; "
            f"lower train.tokens_per_batch (now {self.config.train.tokens_per_batch}) "
            "and raise train.accumulate to make up for it"
        )


def cost(figures: Mapping[str, float], name: str) -> float:
    """A figure of a validation, negative if more of it is better.

    >>> cost({"loss": 2.0}, "loss"), cost({"accuracy": 0.5}, "accuracy")
    (2.0, -0.5)
    """
    return figures[name] if name in ("loss", "wer") else -figures[name]


def _copy(source: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, value in target.items():
            value.copy_(source[name])

"""The training loop by several processes, each with a copy of the model and its share of every update (DDP).

An update is that of one process: `train.accumulate` batches of the one plan, of which rank r of N takes every N-th from
the r-th on; gradients are summed over all and the loss is divided by the targets of all. All decide alike, for what
they decide by are sums that have the same bits everywhere: whether a loss is finite, a model better, a signal asked for
an end. Rank 0 writes and speaks; each has random numbers of its own for dropout, which its checkpoints keep.
"""

import hashlib
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from headwise.data.batch import Stream, TrainingBatch
from headwise.errors import UserError
from headwise.training.checkpoint import CHECKPOINTS, Checkpoint, checkpoint_paths
from headwise.training.loss import Loss
from headwise.training.metrics import Clock, MetricsLog
from headwise.training.ranks import Ranks, sum_gradients
from headwise.training.trainer import Trainer
from headwise.training.validation import Outputs, Shard, ValidationDeferred


class EveryNth:
    """Every N-th batch of a stream, from that of this rank on; where it stands is behind whole updates of `total`."""

    def __init__(self, stream: Stream, ranks: Ranks, total: int) -> None:
        self._stream, self._rank, self._size, self._total = stream, ranks.rank, ranks.size, total
        self.wait_seconds = 0.0

    def __iter__(self) -> Iterator[TrainingBatch]:
        batches = iter(self._stream)
        while True:
            update = [next(batches) for _ in range(self._total)]
            self.wait_seconds = self._stream.wait_seconds
            yield from update[self._rank :: self._size]

    def state(self) -> dict[str, int]:
        """Behind the updates begun."""
        return self._stream.state()

    def close(self) -> None:
        """End the stream."""
        self._stream.close()


class SummedLoss(nn.Module):
    """An objective as a module, for torch's wrappers act on a forward pass."""

    def __init__(self, network: nn.Module, objective: Callable[[Any], Loss]) -> None:
        super().__init__()
        self.network = network
        self._objective = objective

    def forward(self, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
        """Objective and figures."""
        loss = self._objective(batch)
        return loss.objective, loss.figures


class Silent(MetricsLog):
    """The log of those that leave it to rank 0."""

    def __init__(self) -> None:
        self._writer = None

    def _append(self, name: str, record: dict[str, Any], tag: str) -> None:
        pass


class ParallelTrainer(Trainer):
    """See `Trainer`; `config.train.accumulate` are the batches of all ranks.

    Of a validation each rank takes every N-th item, and all have the figures of one process.
    """

    def __init__(self, ranks: Ranks, *arguments: Any) -> None:
        network, config, objective, open_stream, validation, export, *others = arguments
        total = config.train.accumulate
        own = len(range(ranks.rank, total, ranks.size))
        config = replace(config, train=replace(config.train, accumulate=own))
        super().__init__(
            network,
            config,
            objective,
            lambda state: EveryNth(open_stream(state), ranks, total),
            validation,
            export if ranks.first else lambda *nothing: None,
            *others,
        )
        self.ranks = ranks
        self._shard = Shard(ranks.rank, ranks.size)
        self._warn: Callable[[str], None] = lambda message: None
        self._asked = ""  # the signal that this process has got
        self._wrapped = False  # for gradients to be summed
        self._given = 0  # batches of this rank, for the last of an update is followed by the sum of gradients

    def run(self) -> str:
        """As of `Trainer`."""
        if not self.progress.step:
            self._draw_anew()
        return super().run()

    def _gradient_norm(self) -> Tensor:
        """Of gradients that are summed: those of the first update here, and from then on in the backward pass."""
        if not self._wrapped:
            self._wrap(self._sum_first())
        return super()._gradient_norm()

    def _sum_first(self) -> bool:
        """Sum the gradients there are; whether some parameter may have none on some rank."""
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        used = self.ranks.sums([float(p.grad is not None) for p in parameters], "who has which gradients")
        for parameter, ranks in zip(parameters, used, strict=True):
            if ranks:
                parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                self.ranks.add(parameter.grad, "the sum of the first gradients")
        hooked = any(module._forward_hooks for module in self.model.modules())  # which may leave out a layer (BART)
        return hooked or min(used) < self.ranks.size

    def _wrap(self, find_unused: bool) -> None:
        """From now on gradients are summed while the backward pass of an update's last batch goes on."""
        with self.ranks.during("the first parameters"), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*broadcast_buffers.* is deprecated")  # from torch 2.13 on
            wrapped = DistributedDataParallel(
                SummedLoss(self.model, self._objective),
                broadcast_buffers=False,
                gradient_as_bucket_view=True,
                find_unused_parameters=find_unused,
            )
        wrapped.register_comm_hook(None, sum_gradients)

        def objective(batch: Any) -> Loss:
            wrapped.require_backward_grad_sync = last = self._is_last()
            self.ranks.doing = "the sum of the gradients" if last else ""
            return Loss(*wrapped(batch))

        self._objective, self._wrapped = objective, True

    def _is_last(self) -> bool:
        """Whether this is the last batch of an update; the next one is the first of another."""
        self._given += 1
        return self._given % self.config.train.accumulate == 0

    def _update(self, batches: list[TrainingBatch], clock: Clock) -> None:
        self._given = 0
        super()._update(batches, clock)

    # What all decide together

    def _over_all(self, sums: list[float]) -> list[float]:
        what = "the sum of the losses" if self._given else "the number of targets"
        *totals, terms, interrupts = self.ranks.sums([*sums, *self._signs()], what)
        self._end_by(terms, interrupts)
        return totals

    def _signs(self) -> list[float]:
        return [float(self._asked == name) for name in ("SIGTERM", "SIGINT")]

    def _end_by(self, terms: float, interrupts: float) -> None:
        """Whoever got a signal, all end by it."""
        if terms or interrupts:
            self._stop_signal = "SIGTERM" if terms else "SIGINT"

    def _ask(self, number: int, frame: FrameType | None) -> None:
        """Said once: whoever has started the processes passes on what a terminal has sent to all of them already."""
        if self._asked:
            return
        self._asked = signal.Signals(number).name
        self.terminal.say(f"{self._asked}: finishing this step and saving a checkpoint")
        if self._validating:
            self._validating = False
            raise ValidationDeferred

    def _outputs(self, model: nn.Module) -> Outputs:
        """Those of all processes: every process has the same outputs, and so the same figures."""
        own: Outputs | None = None
        if not self._asked:
            with suppress(ValidationDeferred):
                own = super()._outputs(model)
        shares = self.ranks.gather([own, *self._signs()], "the shares of a validation")
        self._end_by(sum(terms for _, terms, _ in shares), sum(interrupts for _, _, interrupts in shares))
        if any(share is None for share, *_ in shares):
            raise ValidationDeferred
        return {name: in_turns([share[name] for share, *_ in shares]) for name in shares[0][0]}

    def _record(self, clock: Clock) -> dict[str, Any]:
        record = super()._record(clock)
        means = [name for name in ("padding", "data_wait") if name in record]
        seconds, own = record["seconds"], [record[name] for name in means]
        tokens, *sums = self.ranks.sums([record["tokens_per_second"] * seconds, *own], "the speed")
        over_all = {name: total / self.ranks.size for name, total in zip(means, sums, strict=True)}
        return {**record, "tokens_per_second": tokens / seconds, **over_all}

    def _open_log(self) -> MetricsLog:
        return super()._open_log() if self.ranks.first else Silent()

    # Checkpoints

    def _write(self, checkpoint: Checkpoint) -> None:
        """One for all: parameters and moments are the same everywhere, random states are those of every rank."""
        training, states = dict(checkpoint.training), {}
        for name in [name for name in training if name.startswith("random.")]:
            parts = self.ranks.gather_tensors(training.pop(name), "the random states")
            states |= {of_rank(name, rank): part for rank, part in enumerate(parts)}
        state = {**checkpoint.state, "ranks": self.ranks.size}
        if self.ranks.first:
            super()._write(Checkpoint(checkpoint.model, {**training, **states}, state))
        self.ranks.meet("the checkpoint of rank 0")

    def restore(self, warn: Callable[[str], None]) -> bool:
        """As of `Trainer`; on other than as many ranks as before those have new random states."""
        self._same_everywhere(checkpoint_paths(self.folder / CHECKPOINTS))
        self._warn = warn
        return super().restore(warn)

    def _same_everywhere(self, paths: list[Path]) -> None:
        newest = self.ranks.gather([path.name for path in paths[-1:]], "the newest checkpoint")
        if any(other != newest[0] for other in newest):
            raise UserError(f"--out {self.folder}: the machines see different checkpoints; use a shared folder")

    def _draw_as(self, checkpoint: Checkpoint) -> None:
        before = checkpoint.state.get("ranks", 1)
        if before != self.ranks.size:
            self._warn(f"{self.ranks.size} ranks go on with what {before} began: other rounding, other dropout")
            self._draw_anew()
            return
        states = {of_rank(name, self.ranks.rank): name for name in ("random.cpu", "random.cuda")}
        own = {states[name]: value for name, value in checkpoint.training.items() if name in states}
        super()._draw_as(replace(checkpoint, training=own))

    def _draw_anew(self) -> None:
        """Random numbers of this rank's own, from the step that it stands at."""
        words = f"{self.config.train.seed} {self.ranks.rank} {self.progress.step}"
        torch.manual_seed(int.from_bytes(hashlib.sha256(words.encode()).digest()[:8], "big") >> 1)

    def _explain(self, error: BaseException) -> BaseException:
        return self.ranks.lost(error, self.progress.step + 1) or super()._explain(error)


def of_rank(name: str, rank: int) -> str:
    """
    >>> of_rank("random.cpu", 0), of_rank("random.cpu", 3)
    ('random.cpu', 'random.cpu.3')
    """
    return f"{name}.{rank}" if rank else name


def in_turns(shares: Sequence[Sequence[Any]]) -> list[Any]:
    """
    >>> in_turns([["a", "c"], ["b"]])
    ['a', 'b', 'c']
    """
    found: list[Any] = [None] * sum(map(len, shares))
    for rank, share in enumerate(shares):
        found[rank :: len(shares)] = share
    return found

"""Data-parallel training (DDP): every process has a copy of the model and computes a share of every update.

An update equals that of a single process: of its `train.accumulate` batches, rank r of N takes every N-th, starting at
r; gradients are summed over ranks, and then divided by the targets of all ranks. So an update needs one small sum of
losses, targets and signals. All ranks make the same decisions (is the loss finite, is the model better, stop on a
signal), because these depend on sums that are bit-identical everywhere. Rank 0 writes and prints. Every rank has its
own random numbers for dropout, which are part of checkpoints.
"""

import hashlib
import math
import signal
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from headwise.core.loss import Loss
from headwise.core.train import Run
from headwise.errors import NonFiniteError, UserError, WriteError
from headwise.pytorch.data.stream import BatchShare
from headwise.pytorch.training.checkpoint import (
    CHECKPOINTS,
    Checkpoint,
    CheckpointDraft,
    StoredCheckpoint,
    checkpoint_paths,
    open_checkpoint,
    remove_drafts,
    verify_checkpoint,
)
from headwise.pytorch.training.metrics import MetricsLog
from headwise.pytorch.training.ranks import Ranks, own_rows, sum_gradients_hook
from headwise.pytorch.training.saver import CheckpointSaver
from headwise.pytorch.training.trainer import Trainer
from headwise.pytorch.training.validation import Outputs, Shard, ValidationDeferred


class LossModule(nn.Module):
    """An objective as a module, since torch's wrappers need a forward pass."""

    def __init__(self, network: nn.Module, objective: Callable[[Any], Loss]) -> None:
        super().__init__()
        self.network = network
        self._objective = objective

    def forward(self, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
        """The objective and the logged sums."""
        loss = self._objective(batch)
        return loss.objective, loss.figures


class NullLog(MetricsLog):
    """A log that writes nothing, for ranks other than 0."""

    def __init__(self) -> None:
        pass

    def _append(self, name: str, record: dict[str, Any]) -> None:
        pass


class RankSaver(CheckpointSaver):
    """See `CheckpointSaver`; all ranks call its methods at the same time."""

    def __init__(self, ranks: Ranks, *given: Any) -> None:
        super().__init__(*given)
        self.ranks = ranks

    def start(self, checkpoint: Checkpoint) -> None:
        """See `CheckpointSaver`; adds the random states of all ranks, and their lanes of a stream."""
        self.finish()
        training, states = dict(checkpoint.training), {}
        for name in [name for name in training if name.startswith("random.")]:
            parts = self.ranks.gather_tensors(training.pop(name), "the random states")
            states |= {of_rank(name, rank): part for rank, part in enumerate(parts)}
        if self.ranks.is_main:
            remove_drafts(self.folder)
        self.ranks.barrier("the checkpoint of rank 0")
        state = {**checkpoint.state, "ranks": self.ranks.size}
        if "lanes" in state["data"]:
            lanes = self.ranks.gather(state["data"]["lanes"], "the positions in the stream")
            state["data"] = {**state["data"], "lanes": interleave(lanes)}
        self.draft = self._own_draft(Checkpoint(checkpoint.model, {**training, **states}, state))

    def _own_draft(self, checkpoint: Checkpoint) -> CheckpointDraft:
        """Rank 0 writes everything; parameters and moments are the same on all ranks."""
        return CheckpointDraft(self.folder, checkpoint if self.ranks.is_main else Checkpoint({}, {}, checkpoint.state))

    def is_written(self) -> bool:
        """See `CheckpointSaver`; the same on all ranks."""
        if not self.draft:
            return False
        [unfinished] = self.ranks.all_reduce([float(not self.draft.done())], "the files of a checkpoint")
        return not unfinished

    def _complete(self, draft: CheckpointDraft) -> None:
        """Rank 0 names the checkpoint when the files of all ranks are written."""
        parts = self._on_all(draft.sums, WriteError, "the files of a checkpoint")
        sums = {name: value for part in parts for name, value in part.items()}
        name = partial(self._name, draft, sums) if self.ranks.is_main else lambda: None
        self._on_all(name, WriteError, "the checkpoint of rank 0")

    def _on_all(self, work: Callable[[], Any], kind: type[ValueError], what: str) -> list[Any]:
        """The results of all ranks, which are JSON values; an error of this kind on one rank is raised on all."""
        result, problem = None, ""
        try:
            result = work()
        except kind as error:
            problem = str(error)
        shares = self.ranks.gather([result, problem], what)
        for _, problem in shares:
            if problem:
                raise kind(problem)
        return [result for result, _ in shares]

    def discard(self, step: int) -> list[Path]:
        """See `CheckpointSaver`; rank 0 deletes the files."""
        self._finish_before(step)
        self.ranks.barrier("the files of a checkpoint")
        if self.ranks.is_main:
            super().discard(step)
        self.ranks.barrier("the checkpoints of rank 0")
        return checkpoint_paths(self.folder)

    def leave(self) -> None:
        """After an error the ranks cannot agree that all files are complete."""
        self.draft = None

    def load(self, path: Path) -> StoredCheckpoint:
        """Each rank verifies some of the files."""
        opened: list[StoredCheckpoint] = []

        def verify() -> None:
            opened.append(open_checkpoint(path, verify_checkpoint(path, Shard(self.ranks.rank, self.ranks.size).of)))

        self._on_all(verify, ValueError, "the checks of a checkpoint")
        return opened[0]


class ParallelTrainer(Trainer):
    """See `Trainer`; `config.train.accumulate` is the number of batches of all ranks.

    In a validation each rank takes every N-th item, and all ranks compute the metrics of all items.
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
            partial(open_stream, share=BatchShare(ranks.rank, ranks.size, total)),
            validation,
            export if ranks.is_main else lambda *nothing: None,
            *others,
        )
        self._defers = False  # ranks decide together
        self._copies = ranks.size  # of the summed gradients
        self.ranks = ranks
        self._shard = Shard(ranks.rank, ranks.size)
        self.saver = RankSaver(ranks, self.saver.folder, self.saver.keep)
        self._warn: Callable[[str], None] = lambda message: None
        self._received = ""  # the signal that this process has received
        self._wrapped = False  # with DDP
        self._n_batches = 0  # of this rank; gradients are summed after the last one of an update

    def run(self, started: float | None = None) -> str:
        """See `Trainer.run`."""
        if not self.progress.step:
            self._seed_rank()
        return super().run(started)

    def gradient_norm(self, run: Run) -> Tensor:
        """The norm of summed gradients; those of the first update are summed here, later ones in the backward pass."""
        if not self._wrapped:
            self._wrap(self._sum_first_gradients())
        return super().gradient_norm(run)

    def _sum_first_gradients(self) -> bool:
        """Sum the gradients; returns whether some parameter may have none on some rank."""
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        used = self.ranks.all_reduce([float(p.grad is not None) for p in parameters], "which gradients exist")
        for parameter, ranks in zip(parameters, used, strict=True):
            if ranks:
                parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                self.ranks.add(parameter.grad, "the sum of the first gradients")
        hooked = any(module._forward_hooks for module in self.model.modules())  # they may skip a layer (BART)
        return hooked or min(used) < self.ranks.size

    def _wrap(self, find_unused: bool) -> None:
        """Wrap the model with DDP, which sums gradients during the backward pass of the last batch of an update."""
        with self.ranks.waiting_for("the first parameters"), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*broadcast_buffers.* is deprecated")  # from torch 2.13 on
            wrapped = DistributedDataParallel(
                LossModule(self.model, self._objective),
                broadcast_buffers=False,
                gradient_as_bucket_view=True,
                find_unused_parameters=find_unused,
            )
        wrapped.register_comm_hook(self.config.train.reduce == "bf16", sum_gradients_hook)

        def objective(batch: Any) -> Loss:
            wrapped.require_backward_grad_sync = last = self._is_last()
            self.ranks.waiting = "the sum of the gradients" if last else ""
            return Loss(*wrapped(batch))

        self._objective, self._wrapped = objective, True

    def _is_last(self) -> bool:
        """Count a batch; whether it is the last one of an update."""
        self._n_batches += 1
        return self._n_batches % self.config.train.accumulate == 0

    # Decisions of all ranks

    def _sum_over_ranks(self, sums: list[float], norm: float) -> tuple[list[float], float]:
        own = [*sums, norm * norm / self._copies, *self._signal_flags()]
        *totals, square, terms, interrupts = self.ranks.all_reduce(own, "the sum of the losses")
        self._stop_on(terms, interrupts)
        return totals, math.sqrt(square) / totals[-1]

    def divisor(self, n_targets: int) -> int:
        return 1  # the targets of all ranks are not known yet

    def _divide_gradients(self, norm: Tensor, n_targets: int) -> Tensor:
        for part in self.optimizer.parts:
            self._divide_in(part, n_targets)
        return torch.tensor(self.progress.gradient_norm, dtype=torch.float64)

    def _divide_in(self, part: torch.optim.Optimizer, n_targets: int) -> None:
        """Divide the gradients of these parameters; Adam's fused kernel does so on its way (see `deferred`).

        `grad_scale` is float32, which is exact up to 2^24 targets.
        """
        if isinstance(part, torch.optim.AdamW):
            part.grad_scale = torch.full((), float(n_targets), device=self.device)  # pyright: ignore
        else:
            divide_gradients(part, n_targets)

    def _shared_elapsed(self) -> float:
        [seconds] = self.ranks.all_reduce([self._elapsed() if self.ranks.is_main else 0.0], "the time of rank 0")
        return seconds

    def _signal_flags(self) -> list[float]:
        return [float(self._received == name) for name in ("SIGTERM", "SIGINT")]

    def _stop_on(self, terms: float, interrupts: float) -> None:
        """Stop if any rank has received a signal."""
        if terms or interrupts:
            self._stop_signal = "SIGTERM" if terms else "SIGINT"

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Reacts once: torchrun forwards signals that a terminal has already sent to all processes."""
        if self._received:
            return
        self._received = signal.Signals(number).name
        self._stop_after_step(self._received)

    def _outputs(self, model: nn.Module) -> Outputs:
        """The outputs of all ranks, the same on every rank."""
        own: Outputs | None = None
        problem = ""
        if not self._received:
            try:
                own = super()._outputs(model)
            except ValidationDeferred:
                pass
            except NonFiniteError as error:
                problem = str(error)
        shares = self.ranks.gather([own, problem, *self._signal_flags()], "the shares of a validation")
        self._stop_on(sum(terms for *_, terms, _ in shares), sum(interrupts for *_, interrupts in shares))
        for _, problem, *_ in shares:
            if problem:
                raise NonFiniteError(problem)
        if any(share is None for share, *_ in shares):
            raise ValidationDeferred
        return {name: interleave([share[name] for share, *_ in shares]) for name in shares[0][0]}

    def _record(self, run: Run) -> dict[str, Any]:
        record = super()._record(run)
        sums = [name for name in ("tokens_per_second", "tflops") if name in record]
        means = [name for name in ("padding", "data_wait", "mfu") if name in record]
        own = [record[name] * record["seconds"] for name in sums] + [record[name] for name in means]
        factors = [1 / record["seconds"]] * len(sums) + [1 / self.ranks.size] * len(means)
        totals = zip([*sums, *means], self.ranks.all_reduce(own, "the speed"), factors, strict=True)
        return {**record, **{name: total * factor for name, total, factor in totals}}

    def _open_log(self) -> MetricsLog:
        return super()._open_log() if self.ranks.is_main else NullLog()

    # Checkpoints

    def restore(self, warn: Callable[[str], None]) -> bool:
        """See `Trainer.restore`; with another number of ranks, random states are new."""
        self._check_same_checkpoint(checkpoint_paths(self.folder / CHECKPOINTS))
        return super().restore(warn)

    def _check_same_checkpoint(self, paths: list[Path]) -> None:
        newest = self.ranks.gather([path.name for path in paths[-1:]], "the newest checkpoint")
        if any(other != newest[0] for other in newest):
            raise UserError(f"--out {self.folder}: the machines see different checkpoints; use a shared folder")

    def _restore_random_state(self, states: Mapping[str, Tensor], ranks: int) -> None:
        if ranks != self.ranks.size:
            self._seed_rank()
            return
        names = {name: of_rank(name, self.ranks.rank) for name in ("random.cpu", "random.cuda")}
        own = {name: states[stored] for name, stored in names.items() if stored in states}
        super()._restore_random_state(own, ranks)

    def _seed_rank(self) -> None:
        """Seed this rank's random numbers from seed, rank and step."""
        text = f"{self.config.train.seed} {self.ranks.rank} {self.progress.step}"
        torch.manual_seed(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1)

    def _as_user_error(self, error: BaseException) -> BaseException:
        return self.ranks.timeout_error(error, self.progress.step + 1) or super()._as_user_error(error)


def divide_gradients(part: torch.optim.Optimizer, n_targets: int) -> None:
    """Divide all gradients of its parameters, of which sharded ones have only this rank's rows."""
    parameters = [parameter for group in part.param_groups for parameter in group["params"]]
    torch._foreach_div_([own_rows(p.grad) for p in parameters if p.grad is not None], n_targets)


def of_rank(name: str, rank: int) -> str:
    """
    >>> of_rank("random.cpu", 0), of_rank("random.cpu", 3)
    ('random.cpu', 'random.cpu.3')
    """
    return f"{name}.{rank}" if rank else name


def interleave(shares: Sequence[Sequence[Any]]) -> list[Any]:
    """
    >>> interleave([["a", "c"], ["b"]])
    ['a', 'b', 'c']
    """
    items: list[Any] = [None] * sum(map(len, shares))
    for rank, share in enumerate(shares):
        items[rank :: len(shares)] = share
    return items

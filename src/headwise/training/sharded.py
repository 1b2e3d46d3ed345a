"""The training loop by several processes that share one copy of the model (FSDP2), which no device could hold.

Each rank keeps a part of every parameter, of its gradient and its moments; a layer is whole while it computes. With
bfloat16 what is gathered of the layers is in bfloat16; sums of gradients, the embeddings and the loss are in float32. A
validation and a model that is written are of a whole copy, which is made for them, on the CPU between them. Checkpoints
are written in parts, by all at once and beside the training (`torch.distributed.checkpoint`), and appear with the first
update after all parts are written; any number of ranks can resume from one. Each rank adds the checksums of its own
parts, so that damage is found as in `checkpoint.py`.
"""

import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headwise.data.batch import TrainingBatch
from headwise.training.checkpoint import (
    CHECKPOINTS,
    Checkpoint,
    check_whole,
    checkpoint_paths,
    finish,
    newest_whole,
    remove_old,
    sha256,
    step_name,
)
from headwise.training.loss import Loss
from headwise.training.metrics import Clock
from headwise.training.parallel import ParallelTrainer, SummedLoss, of_rank
from headwise.training.ranks import Ranks, mesh, whole, writers
from headwise.training.trainer import Progress
from headwise.training.validation import Outputs

METADATA = ".metadata"  # which part lies where, as torch calls it
MOMENTS = ("exp_avg", "exp_avg_sq")  # of Adam, as large as the parameter


def load_parts(tensors: dict[str, Tensor], checkpoint: Path) -> None:
    """Fill tensors, by their names in a checkpoint, with what its parts hold."""
    import torch.distributed.checkpoint as dcp  # slow to import, and only for this kind of training

    dcp.load(tensors, checkpoint_id=checkpoint)


def save_parts(tensors: dict[str, Tensor], checkpoint: Path, group: Any) -> Any:
    """Begin to write this rank's parts; returns a future of the end."""
    import torch.distributed.checkpoint as dcp  # as above

    return dcp.async_save(tensors, checkpoint_id=checkpoint, process_group=group)


def shard(network: nn.Module, precision: str, device: torch.device, offload: bool = False) -> SummedLoss:
    """Share out the parameters of a network, which is changed: each layer by itself, the others together.

    With `offload` parts lie and are updated in the CPU's memory; a layer is on the device while it computes.
    """
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard  # slow to import

    in_half = precision == "bf16" or (precision == "auto" and device.type == "cuda")
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
    stacks = [module for module in network.modules() if isinstance(module, nn.ModuleList)]
    root = SummedLoss(network if offload else network.to(device), lambda batch: batch)
    where: dict[str, Any] = {"mesh": mesh(device)}
    if offload:
        where["offload_policy"] = CPUOffloadPolicy(pin_memory=device.type == "cuda")
    for layer in [layer for stack in stacks for layer in stack]:
        fully_shard(layer, mp_policy=policy if in_half else MixedPrecisionPolicy(), **where)
    fully_shard(root, **where)
    return root


class ShardedTrainer(ParallelTrainer):
    """See `ParallelTrainer`; `root` is the network as `shard` has it, `replica` one that is validated and written."""

    def __init__(self, ranks: Ranks, root: Any, replica: nn.Module, *given: Any) -> None:
        super().__init__(ranks, *given)
        self._root, self._replica, self._group = root, replica, writers()
        self._pending: tuple[Any, Path, dict[str, Any]] | None = None  # a checkpoint that is being written
        export = self.export
        self.export = lambda parameters, figures, what: export(self._judged, figures, what)
        root._objective, self._objective = self._objective, self._by_root

    @property
    def _judged(self) -> dict[str, Tensor]:
        return {name: parameter.detach() for name, parameter in self._replica.named_parameters()}

    def _by_root(self, batch: Any) -> Loss:
        self.ranks.doing = "parts of layers, or of their gradients"
        self._root.set_requires_gradient_sync(self._is_last())
        objective, figures = self._root(batch)
        # FSDP takes the mean of gradients, and gloo knows no other: so many times the gradient of the same number
        return Loss(objective + (self.ranks.size - 1) * (objective - objective.detach()), figures)

    def _gradient_norm(self) -> Tensor:
        parts = [p.grad.to_local() for p in self.model.parameters() if p.grad is not None]  # pyright: ignore
        squares = torch.stack(torch._foreach_norm(parts)).square().sum()
        self.ranks.add(squares, "the norm of the gradients")
        return squares.sqrt()

    def _update(self, batches: list[TrainingBatch], clock: Clock) -> None:
        super()._update(batches, clock)
        if self._pending:
            [unfinished] = self.ranks.sums([float(not self._pending[0].done())], "the parts of a checkpoint")
            if not unfinished:
                self._settle()

    def _model_of(self, checkpoint: Path) -> dict[str, Tensor]:
        self._state_of(checkpoint)
        parameters = {name: torch.empty_like(p.detach()) for name, p in self._parameters().items()}
        load_parts({f"model.{name}": p for name, p in parameters.items()}, checkpoint)
        return parameters

    def _outputs(self, model: nn.Module) -> Outputs:
        """Those of the whole copy."""
        own = dict(self._replica.named_parameters())
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                own[name].copy_(whole(parameter))
        self._replica.to(self.device).eval()
        try:
            return super()._outputs(self._replica)
        finally:
            self._replica.to("cpu")

    # Checkpoints

    def _write(self, checkpoint: Checkpoint) -> None:
        """Start to write it; `_settle` completes it."""
        self._settle()
        state = {**checkpoint.state, "ranks": self.ranks.size}
        name = step_name(state["step"])
        draft = self.folder / CHECKPOINTS / f".{name}"
        tensors = {f"model.{name}": value for name, value in checkpoint.model.items()}
        for kind, value in checkpoint.training.items():
            tensors[of_rank(kind, self.ranks.rank) if kind.startswith("random.") else kind] = value
        if self.ranks.first:
            shutil.rmtree(draft, ignore_errors=True)  # left by a crash, perhaps of more ranks
        self.ranks.meet("the checkpoint of rank 0")
        with self.ranks.during("the parts of a checkpoint"):
            writing = save_parts(tensors, draft, self._group)
        self._pending = writing, draft, state
        if self._stop_signal or state["step"] == self.config.train.max_steps or self._out_of_patience():
            self._settle()

    def _settle(self) -> None:
        """Wait until all parts of the checkpoint are written, and rename it."""
        if not self._pending:
            return
        writing, draft, state = self._pending
        writing.result()  # torch has synced the parts
        own = [*draft.glob(f"__{self.ranks.rank}_*"), *([draft / METADATA] if self.ranks.first else [])]
        sums = self.ranks.gather({path.name: sha256(path) for path in own}, "the checksums of a checkpoint")
        if self.ranks.first:
            finish(draft, draft.with_name(draft.name[1:]), state, {k: v for part in sums for k, v in part.items()})
            remove_old(draft.parent, max(self.config.train.keep_last, self.config.train.average))
        self._pending = None
        self.ranks.meet("the checkpoint of rank 0")

    def _state_of(self, checkpoint: Path) -> dict[str, Any]:
        """The state of an undamaged checkpoint; ValueError, on all ranks, for a damaged one. Each checks its share."""
        try:
            found: Any = check_whole(checkpoint, self._shard.of)
        except ValueError as error:
            found = str(error)
        for other in self.ranks.gather(found, "the checks of a checkpoint"):
            if isinstance(other, str):
                raise ValueError(other)
        return found

    def restore(self, warn: Callable[[str], None]) -> bool:
        """As of `Trainer`, by any number of ranks."""
        self._same_everywhere(checkpoint_paths(self.folder / CHECKPOINTS))
        found = newest_whole(self.folder / CHECKPOINTS, lambda path: (path, self._state_of(path)), warn)
        if found is None:
            return False
        path, state = found
        self.progress = Progress(**{name: state[name] for name in asdict(Progress()) if name in state})
        parameters = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        model = {f"model.{name}": p.detach() for name, p in parameters.items()}
        training = {f"{kind}.{name}": torch.zeros_like(p) for name, p in parameters.items() for kind in MOMENTS}
        training |= {f"step.{name}": torch.zeros(()) for name in parameters}
        average = {f"ema.{name}": value for name, value in self.average.items()}
        random = self._draws() if state["ranks"] == self.ranks.size else {}
        with self.ranks.during("the parts of a checkpoint"):
            load_parts({**model, **training, **average, **random}, path)
        self.optimizer.restore(self.model, training)
        self._warn = warn
        self._draw_as(Checkpoint({}, random, state))
        return True

    def _draws(self) -> dict[str, Tensor]:
        """This rank's random states, to be overwritten."""
        states = {"random.cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            states["random.cuda"] = torch.cuda.get_rng_state(self.device)
        return {of_rank(name, self.ranks.rank): state for name, state in states.items()}

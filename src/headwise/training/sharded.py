"""Sharded training (FSDP2): the ranks share one copy of the model, for models that do not fit on one device.

Each rank holds a part of every parameter, gradient and moment; a layer is gathered while it computes. With bfloat16,
gathered layers are bfloat16; sums of gradients, embeddings and the loss are float32. Validation and export use a full
copy of the model, which is on the CPU otherwise. All ranks write their parts of a checkpoint asynchronously
(`torch.distributed.checkpoint`); it appears after the first update when all parts are complete. Any number of ranks can
resume from it. Each rank adds checksums of its parts, as in `checkpoint.py`.
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
    checkpoint_paths,
    finish_checkpoint,
    newest_undamaged,
    remove_old,
    sha256,
    step_name,
    verify_checkpoint,
)
from headwise.training.loss import Loss
from headwise.training.metrics import Clock
from headwise.training.parallel import LossModule, ParallelTrainer, of_rank
from headwise.training.ranks import Ranks, checkpoint_group, device_mesh, full_tensor
from headwise.training.trainer import Progress
from headwise.training.validation import Outputs

METADATA = ".metadata"  # torch's index of the parts
MOMENTS = ("exp_avg", "exp_avg_sq")  # of Adam, in the shape of the parameter


def load_parts(tensors: dict[str, Tensor], checkpoint: Path) -> None:
    """Fill tensors, by name, from the parts of a checkpoint."""
    import torch.distributed.checkpoint as dcp  # slow to import

    dcp.load(tensors, checkpoint_id=checkpoint)


def save_parts(tensors: dict[str, Tensor], checkpoint: Path, group: Any) -> Any:
    """Start writing this rank's parts; returns a future."""
    import torch.distributed.checkpoint as dcp  # as above

    return dcp.async_save(tensors, checkpoint_id=checkpoint, process_group=group)


def shard(network: nn.Module, precision: str, device: torch.device, offload: bool = False) -> LossModule:
    """Shard the parameters of a network in place: each layer separately, all others together.

    With `offload`, parts are kept and updated in CPU memory; a layer is on the device while it computes.
    """
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard  # slow to import

    in_half = precision == "bf16" or (precision == "auto" and device.type == "cuda")
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
    stacks = [module for module in network.modules() if isinstance(module, nn.ModuleList)]
    root = LossModule(network if offload else network.to(device), lambda batch: batch)
    options: dict[str, Any] = {"mesh": device_mesh(device)}
    if offload:
        options["offload_policy"] = CPUOffloadPolicy(pin_memory=device.type == "cuda")
    for layer in [layer for stack in stacks for layer in stack]:
        fully_shard(layer, mp_policy=policy if in_half else MixedPrecisionPolicy(), **options)
    fully_shard(root, **options)
    return root


class ShardedTrainer(ParallelTrainer):
    """See `ParallelTrainer`; `root` is the result of `shard`, `replica` a full copy for validation and export."""

    def __init__(self, ranks: Ranks, root: Any, replica: nn.Module, *given: Any) -> None:
        super().__init__(ranks, *given)
        self._root, self._replica, self._group = root, replica, checkpoint_group()
        self._pending: tuple[Any, Path, dict[str, Any]] | None = None  # the checkpoint being written
        export = self.export
        self.export = lambda parameters, figures, what: export(self._full_parameters, figures, what)
        root._objective, self._objective = self._objective, self._sharded_objective

    @property
    def _full_parameters(self) -> dict[str, Tensor]:
        return {name: parameter.detach() for name, parameter in self._replica.named_parameters()}

    def _sharded_objective(self, batch: Any) -> Loss:
        self.ranks.waiting = "parts of layers, or of their gradients"
        self._root.set_requires_gradient_sync(self._is_last())
        objective, figures = self._root(batch)
        # FSDP averages gradients (gloo cannot sum them): multiply the gradient by the number of ranks, not the value
        return Loss(objective + (self.ranks.size - 1) * (objective - objective.detach()), figures)

    def _gradient_norm(self) -> Tensor:
        parts = [p.grad.to_local() for p in self.model.parameters() if p.grad is not None]  # pyright: ignore
        squares = torch.stack(torch._foreach_norm(parts)).square().sum()
        self.ranks.add(squares, "the norm of the gradients")
        return squares.sqrt()

    def _update(self, batches: list[TrainingBatch], clock: Clock) -> None:
        super()._update(batches, clock)
        if self._pending:
            [unfinished] = self.ranks.all_reduce([float(not self._pending[0].done())], "the parts of a checkpoint")
            if not unfinished:
                self._finish_checkpoint()

    def _load_parameters(self, checkpoint: Path) -> dict[str, Tensor]:
        self._verified_state(checkpoint)
        parameters = {name: torch.empty_like(p.detach()) for name, p in self._parameters().items()}
        load_parts({f"model.{name}": p for name, p in parameters.items()}, checkpoint)
        return parameters

    def _outputs(self, model: nn.Module) -> Outputs:
        """The outputs of the full copy."""
        own = dict(self._replica.named_parameters())
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                own[name].copy_(full_tensor(parameter))
        self._replica.to(self.device).eval()
        try:
            return super()._outputs(self._replica)
        finally:
            self._replica.to("cpu")

    # Checkpoints

    def _write(self, checkpoint: Checkpoint) -> None:
        """Start writing; `_finish_checkpoint` completes it."""
        self._finish_checkpoint()
        state = {**checkpoint.state, "ranks": self.ranks.size}
        name = step_name(state["step"])
        draft = self.folder / CHECKPOINTS / f".{name}"
        tensors = {f"model.{name}": value for name, value in checkpoint.model.items()}
        for kind, value in checkpoint.training.items():
            tensors[of_rank(kind, self.ranks.rank) if kind.startswith("random.") else kind] = value
        if self.ranks.is_main:
            shutil.rmtree(draft, ignore_errors=True)  # left by a crash
        self.ranks.barrier("the checkpoint of rank 0")
        with self.ranks.waiting_for("the parts of a checkpoint"):
            writing = save_parts(tensors, draft, self._group)
        self._pending = writing, draft, state
        if self._stop_signal or state["step"] == self.config.train.max_steps or self._out_of_patience():
            self._finish_checkpoint()

    def _finish_checkpoint(self) -> None:
        """Wait until all parts of the checkpoint are written, and rename it."""
        if not self._pending:
            return
        writing, draft, state = self._pending
        writing.result()  # torch has synced the parts to disk
        own = [*draft.glob(f"__{self.ranks.rank}_*"), *([draft / METADATA] if self.ranks.is_main else [])]
        sums = self.ranks.gather({path.name: sha256(path) for path in own}, "the checksums of a checkpoint")
        if self.ranks.is_main:
            finish_checkpoint(
                draft, draft.with_name(draft.name[1:]), state, {k: v for part in sums for k, v in part.items()}
            )
            remove_old(draft.parent, max(self.config.train.keep_last, self.config.train.average))
        self._pending = None
        self.ranks.barrier("the checkpoint of rank 0")

    def _verified_state(self, checkpoint: Path) -> dict[str, Any]:
        """The state of an undamaged checkpoint; ValueError on all ranks if it is damaged.

        Each rank checks some files.
        """
        try:
            result: Any = verify_checkpoint(checkpoint, self._shard.of)
        except ValueError as error:
            result = str(error)
        for other in self.ranks.gather(result, "the checks of a checkpoint"):
            if isinstance(other, str):
                raise ValueError(other)
        return result

    def restore(self, warn: Callable[[str], None]) -> bool:
        """See `Trainer.restore`; with any number of ranks."""
        self._check_same_checkpoint(checkpoint_paths(self.folder / CHECKPOINTS))
        found = newest_undamaged(self.folder / CHECKPOINTS, lambda path: (path, self._verified_state(path)), warn)
        if found is None:
            return False
        path, state = found
        self.progress = Progress(**{name: state[name] for name in asdict(Progress()) if name in state})
        parameters = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        model = {f"model.{name}": p.detach() for name, p in parameters.items()}
        training = {f"{kind}.{name}": torch.zeros_like(p) for name, p in parameters.items() for kind in MOMENTS}
        training |= {f"step.{name}": torch.zeros(()) for name in parameters}
        average = {f"ema.{name}": value for name, value in self.average.items()}
        random = self._random_states() if state["ranks"] == self.ranks.size else {}
        with self.ranks.waiting_for("the parts of a checkpoint"):
            load_parts({**model, **training, **average, **random}, path)
        self.optimizer.restore(self.model, training)
        self._warn = warn
        self._restore_random_state(Checkpoint({}, random, state))
        return True

    def _random_states(self) -> dict[str, Tensor]:
        """This rank's random states."""
        states = {"random.cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            states["random.cuda"] = torch.cuda.get_rng_state(self.device)
        return {of_rank(name, self.ranks.rank): state for name, state in states.items()}

"""Sharded training (FSDP2): the ranks share one copy of the model, for models that do not fit on one device.

Each rank holds a part of every parameter, gradient and moment; a layer is gathered while it computes. With bfloat16
on CUDA, gathered layers are bfloat16; sums of gradients, embeddings and the loss are float32. Validation and export use
a full copy of the model, which is on the CPU otherwise. Each rank writes and reads only its own rows of a checkpoint.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from headwise.core.loss import Loss
from headwise.core.train import Run
from headwise.pytorch.training.checkpoint import Checkpoint, CheckpointDraft, StoredTensors
from headwise.pytorch.training.parallel import LossModule, ParallelTrainer, RankSaver, divide_gradients
from headwise.pytorch.training.ranks import Ranks, device_mesh, full_tensor, own_rows
from headwise.pytorch.training.validation import Outputs


def shard(network: nn.Module, in_half: bool, device: torch.device, offload: bool = False) -> LossModule:
    """Shard the parameters of a network in place: each layer separately, all others together.

    With `offload`, parts are kept and updated in CPU memory; a layer is on the device while it computes. With `in_half`
    layers are gathered in bfloat16; not on a CPU, because norms there take float32 only. Products are bfloat16 anyway.
    """
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard  # slow to import

    in_half = in_half and device.type == "cuda"
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


class ShardSaver(RankSaver):
    """See `RankSaver`; each rank writes and reads its own rows of every tensor."""

    def _own_draft(self, checkpoint: Checkpoint) -> CheckpointDraft:
        """Each rank writes its rows; rank 0 also what is not sharded: counts of steps and random states."""
        model, training = (self._rows(tensors) for tensors in (checkpoint.model, checkpoint.training))
        parts = Checkpoint(model, training, checkpoint.state)
        return CheckpointDraft(self.folder, parts, self.ranks.rank, self.ranks.size)

    def _rows(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        rows = {name: own_rows(tensor) for name, tensor in tensors.items()}
        return {name: own for name, own in rows.items() if own is not tensors[name] or self.ranks.is_main}

    def own_part(self, tensors: StoredTensors, name: str, own: Tensor) -> Tensor:
        """This rank's rows of a stored tensor, as a part of the whole one; only these are read."""
        if not tensors.has_rows(name):
            return tensors[name]
        part = torch.zeros_like(own)
        rows = own_rows(part)
        per_rank = -(-len(own) // self.ranks.size)  # as FSDP2 shards, so the last ranks may have fewer rows or none
        rows.copy_(tensors.rows(name, self.ranks.rank * per_rank, len(rows)))
        return part


class ShardedTrainer(ParallelTrainer):
    """See `ParallelTrainer`; `root` is the result of `shard`, `replica` a full copy for validation and export."""

    def __init__(self, ranks: Ranks, root: Any, replica: nn.Module, *given: Any) -> None:
        super().__init__(ranks, *given)
        self._copies = 1
        self._root, self._replica = root, replica
        self.saver = ShardSaver(ranks, self.saver.folder, self.saver.keep)
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

    def gradient_norm(self, run: Run) -> Tensor:
        """The norm of this rank's rows, on the device, also if they are not."""
        parts = [own_rows(p.grad) for p in self.model.parameters() if p.grad is not None]
        return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(parts))).to(run.device)

    def _divide_in(self, part: torch.optim.Optimizer, n_targets: int) -> None:
        divide_gradients(part, n_targets)

    def _gather_parameters(self) -> None:
        """Write the parameters of all ranks into the full copy."""
        own = dict(self._replica.named_parameters())
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                own[name].copy_(full_tensor(parameter))

    def _outputs(self, model: nn.Module) -> Outputs:
        """The outputs of the full copy."""
        self._gather_parameters()
        self._replica.to(self.device).eval()
        try:
            return super()._outputs(self._replica)
        finally:
            self._replica.to("cpu")

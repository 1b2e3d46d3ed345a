"""The objective of translation: from a batch to its loss, for training and validation.

An objective is a function from a batch to a `Loss`; the trainer knows nothing else of the task. Objectives of other
tasks are in `headwise.pytorch.tasks`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.config.training import TrainConfig
from headwise.core.batches import Batch
from headwise.core.loss import Loss, sequence_loss
from headwise.core.masks import PackedRows
from headwise.core.train import Objective
from headwise.pytorch.training.packed import attention_for, packed_states

StatesOf = Callable[[Tensor, Tensor, PackedRows, PackedRows], Tensor]  # with the signature of `real_states`


def real_states(
    network: Any, src: Tensor, tgt_in: Tensor, sources: PackedRows, targets: PackedRows
) -> Float[Tensor, "rows d_model"]:
    """Hidden states of the rows `targets`; computed without padding if possible."""
    attend = attention_for(network, sources.mask, targets.mask)
    if attend:
        return packed_states(network, src, tgt_in, sources, targets, attend)
    return _padded_states(network.states, src, tgt_in, sources, targets)


def _padded_states(
    states: Callable[..., Tensor], src: Tensor, tgt_in: Tensor, sources: PackedRows, targets: PackedRows
) -> Float[Tensor, "rows d_model"]:
    return targets.of(states(src, tgt_in, sources.mask))[0]


def translation_objective(model: nn.Module, pad_id: int, train: TrainConfig, padded: bool = False) -> Objective:
    """Section 5.4: label-smoothed cross-entropy of the next token, optionally with R-Drop.

    With `padded` the layers always see padded batches, never packed ones.
    """
    states = partial(real_states, model)
    if padded or train.compile or train.shard != "none":  # padding means fewer shapes to compile
        network: Any = model
        states = partial(_padded_states, torch.compile(network.states) if train.compile else network.states)

    def objective(batch: Batch) -> Loss:
        weight, bias, scale = projection(model)  # may be computed for each batch
        smoothing, r_drop = train.label_smoothing, train.r_drop
        return batch_loss(states, weight, batch, pad_id, smoothing, r_drop, bias, scale)

    return objective


def batch_loss(
    states: StatesOf,
    weight: Float[Tensor, "vocab d_model"],
    batch: Batch,
    pad_id: int,
    label_smoothing: float = 0.0,
    r_drop: float = 0.0,
    bias: Float[Tensor, " vocab"] | None = None,
    scale: float = 1.0,
) -> Loss:
    """Loss of a batch, summed over its target tokens; with `r_drop` every pair is computed twice, in one batch.

    `states` has the signature of `real_states`; `weight`, `bias` and `scale` come from `projection`.
    """
    real = batch.tgt_out != pad_id
    passes, labels = 2 if r_drop else 1, PackedRows(real, batch.n_target_tokens).of(batch.tgt_out)[0]
    inputs = batch.src, batch.tgt_in, batch.src_mask, real
    src, tgt_in, src_mask, tgt_mask = (torch.cat([t, t]) for t in inputs) if r_drop else inputs
    sources, targets = PackedRows(src_mask, batch.n_source_tokens * passes), PackedRows(tgt_mask, len(labels) * passes)
    rows = states(src, tgt_in, sources, targets).unflatten(0, (passes, -1))
    rows = rows if scale == 1.0 else rows * scale
    return sequence_loss(rows, weight, labels, label_smoothing, r_drop, bias)


def projection(model: nn.Module) -> tuple[nn.Parameter, nn.Parameter | None, float]:
    """The output projection: matrix, bias or None, and a factor on the hidden states (T5)."""
    output: Any = model.get_submodule("output")
    return output.weight, output.bias, getattr(getattr(model, "head", None), "scale", 1.0)


@torch.inference_mode()
def nll_of(model: nn.Module, batch: Batch, pad_id: int, device: torch.device) -> float:
    """Negative log-likelihood of a batch in nats, without smoothing; the model is in evaluation mode."""
    weight, bias, scale = projection(model)
    return batch_loss(partial(real_states, model), weight, batch.to(device), pad_id, bias=bias, scale=scale).nll.item()

"""From a batch to its loss: the forward half of a training step, and the same for validation.

What is trained for is a function from a batch to a `Loss`; the trainer is given one and knows no task. Here is that of
a translator; classifiers and forecasters have theirs in `sightline.tasks`.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from sightline.config import TrainConfig
from sightline.data.batch import Batch
from sightline.training.loss import Loss, sequence_loss

Objective = Callable[[Any], Loss]  # of one kind of batch


@runtime_checkable
class WithoutPadding(Protocol):
    """A model that can do without padding: hidden states (rows, d_model) of real target positions only."""

    def without_padding(self, src: Tensor, tgt_in: Tensor, src_mask: Tensor, tgt_mask: Tensor) -> Tensor: ...


def translation_objective(model: nn.Module, pad_id: int, train: TrainConfig, padded: bool = False) -> Objective:
    """Section 5.4: label-smoothed cross-entropy of the next piece, with R-Drop if asked for.

    `padded`: whoever looks at the model's layers meanwhile finds sentences one beside the other, with padding.
    """
    forward = model.__call__ if padded else model
    if train.compile:  # for shapes, of which there are fewer with padding
        forward = torch.compile(model.forward)

    def objective(batch: Batch) -> Loss:
        weight = model.get_parameter("output.weight")
        return batch_loss(forward, weight, batch, pad_id, train.label_smoothing, train.r_drop)

    return objective


def batch_loss(
    forward: Callable[..., Tensor],
    weight: Tensor,
    batch: Batch,
    pad_id: int,
    label_smoothing: float = 0.0,
    r_drop: float = 0.0,
) -> Loss:
    """Loss of a batch, summed over its target pieces; with `r_drop` every pair passes twice, in one batch.

    `forward(src, tgt_in, src_mask)` gives hidden states, or its `without_padding` does; `weight` (vocab, d_model)
    projects them to logits.
    """
    real = batch.tgt_out != pad_id
    inputs = batch.src, batch.tgt_in, batch.src_mask, real
    passes = 2 if r_drop else 1
    if passes == 2:
        inputs = tuple(torch.cat([t, t]) for t in inputs)
    rows = _real_states(forward, *inputs).unflatten(0, (passes, -1))
    return sequence_loss(rows, weight, _at(real, batch.tgt_out), label_smoothing, r_drop)


def _real_states(
    forward: Callable[..., Tensor], src: Tensor, tgt_in: Tensor, src_mask: Tensor, tgt_mask: Tensor
) -> Tensor:
    if isinstance(forward, WithoutPadding):
        return forward.without_padding(src, tgt_in, src_mask, tgt_mask)
    return _at(tgt_mask, forward(src, tgt_in, src_mask))


def _at(mask: Tensor, x: Tensor) -> Tensor:
    """x[mask], with a cheaper gradient."""
    return x.flatten(0, 1).index_select(0, mask.flatten().nonzero().squeeze(1))


def validation_loss(model: nn.Module, batches: Iterable[Batch], pad_id: int, device: torch.device) -> float:
    """Negative log-likelihood per target piece, in nats, without smoothing; the model is in evaluation mode."""
    nll, tokens = 0.0, 0
    with torch.inference_mode():
        for batch in batches:
            nll += batch_loss(model, model.get_parameter("output.weight"), batch.to(device), pad_id).nll.item()
            tokens += batch.n_target_tokens
    return nll / max(1, tokens)

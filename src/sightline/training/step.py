"""From a batch to its loss: the forward half of a training step, and the same for validation."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from sightline.data.batch import Batch
from sightline.training.loss import Loss, sequence_loss


def batch_loss(
    forward: Callable[..., Tensor],
    weight: Tensor,
    batch: Batch,
    pad_id: int,
    label_smoothing: float = 0.0,
    r_drop: float = 0.0,
) -> Loss:
    """Loss of a batch, summed over its target pieces; with `r_drop` every pair passes twice, in one batch.

    `forward(src, tgt_in, src_mask)` gives hidden states, `weight` (vocab, d_model) projects them to logits.
    """
    src, tgt_in, src_mask = batch.src, batch.tgt_in, batch.src_mask
    passes = 2 if r_drop else 1
    if passes == 2:
        src, tgt_in, src_mask = (torch.cat([t, t]) for t in (src, tgt_in, src_mask))
    hidden = forward(src, tgt_in, src_mask)
    real = (batch.tgt_out != pad_id).flatten().nonzero().squeeze(1)
    rows = hidden.reshape(passes, -1, hidden.size(-1)).index_select(1, real)
    targets = batch.tgt_out.flatten().index_select(0, real)
    return sequence_loss(rows, weight, targets, label_smoothing, r_drop)


def validation_loss(model: nn.Module, batches: Iterable[Batch], pad_id: int, device: torch.device) -> float:
    """Negative log-likelihood per target piece, in nats, without smoothing; the model is in evaluation mode."""
    nll, tokens = 0.0, 0
    with torch.inference_mode():
        for batch in batches:
            nll += batch_loss(model, model.get_parameter("output.weight"), batch.to(device), pad_id).nll.item()
            tokens += batch.n_target_tokens
    return nll / max(1, tokens)

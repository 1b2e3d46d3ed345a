"""From a batch to its loss: the forward half of a training step, and the same for validation.

What is trained for is a function from a batch to a `Loss`; the trainer is given one and knows no task.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from sightline.config import TrainConfig
from sightline.data.batch import Batch, LabelledBatch, TrainingBatch, WindowBatch
from sightline.training.loss import Loss, label_loss, sequence_loss, squared_loss

Objective = Callable[[Any], Loss]  # of one kind of batch


def translation_objective(model: nn.Module, pad_id: int, train: TrainConfig) -> Objective:
    """Section 5.4: label-smoothed cross-entropy of the next piece, with R-Drop if asked for."""
    forward = torch.compile(model) if train.compile else model

    def objective(batch: Batch) -> Loss:
        weight = model.get_parameter("output.weight")
        return batch_loss(forward, weight, batch, pad_id, train.label_smoothing, train.r_drop)

    return objective


def classification_objective(model: nn.Module, train: TrainConfig) -> Objective:
    """Label-smoothed cross-entropy of a text's label."""
    forward = torch.compile(model) if train.compile else model

    def objective(batch: LabelledBatch) -> Loss:
        return label_loss(forward(batch.src, batch.src_mask), batch.labels, train.label_smoothing)

    return objective


def forecast_objective(model: nn.Module, train: TrainConfig) -> Objective:
    """Squared error of the standardised values after a window."""
    forward = torch.compile(model) if train.compile else model

    def objective(batch: WindowBatch) -> Loss:
        return squared_loss(forward(batch.src, batch.src_mask), batch.targets)

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


def mean_figures(objective: Objective, batches: Iterable[TrainingBatch], device: torch.device) -> dict[str, float]:
    """The objective's value and its figures per target over all `batches`; the model is in evaluation mode."""
    sums: dict[str, float] = {}
    n_targets = 0
    with torch.inference_mode():
        for batch in batches:
            loss = objective(batch.to(device))
            for name, value in {"loss": loss.objective, **loss.figures}.items():
                sums[name] = sums.get(name, 0.0) + value.item()
            n_targets += batch.n_targets
    return {name: value / max(1, n_targets) for name, value in sums.items()}

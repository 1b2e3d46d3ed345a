"""Losses over labels and values."""

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from headwise.training.loss import Loss, at_least_float32


def label_loss(
    logits: Float[Tensor, "*each classes"], labels: Int[Tensor, "*each"], label_smoothing: float = 0.0
) -> Loss:
    """Label-smoothed cross-entropy in nats of texts, or of their tokens but those of `data.tagged.IGNORED`, and how
    many the likeliest class gets right.
    """
    correct = (logits.argmax(-1) == labels).sum()
    flat = at_least_float32(logits).flatten(0, -2)
    objective = F.cross_entropy(flat, labels.flatten(), reduction="sum", label_smoothing=label_smoothing)
    return Loss(objective, {"accuracy": correct.float()})


def squared_loss(predicted: Float[Tensor, "batch horizon"], true: Float[Tensor, "batch horizon"]) -> Loss:
    """Squared error of forecasts, a mean over the steps of each; the absolute error is logged beside it."""
    error = at_least_float32(predicted) - true
    return Loss(error.square().mean(1).sum(), {"mae": error.detach().abs().mean(1).sum()})

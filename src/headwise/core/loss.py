"""Label-smoothed cross-entropy (section 5.4) and R-Drop (arXiv:2106.14448), computed from hidden states.

The logits of a batch are the largest tensor of a training step; softmax, its gradient and zero-filled buffers take a
quarter of it on a CPU. Here output projection and loss are one function. It processes rows in chunks and computes the
gradients of hidden states and projection in the same pass, in closed form.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from headwise.core import training_library

CHUNK_ROWS = 1024  # rows of logits that exist at once
ON_CUDA = 4  # times as many, for larger products


@dataclass(frozen=True)
class Loss:
    """Sums over the targets of a batch: tokens of a translation, labels of texts, windows of a series."""

    objective: Float[Tensor, ""]  # what is minimised; differentiable
    figures: dict[str, Float[Tensor, ""]]  # further logged sums, such as "nll" or "accuracy"

    @property
    def nll(self) -> Float[Tensor, ""]:
        """Plain negative log-likelihood of a translation in nats, for perplexity."""
        return self.figures["nll"]


def sequence_loss(
    hidden: Float[Tensor, "passes rows d_model"],
    weight: Float[Tensor, "vocab d_model"],
    targets: Int[Tensor, " rows"],
    label_smoothing: float,
    r_drop: float = 0.0,
    bias: Float[Tensor, " vocab"] | None = None,
) -> Loss:
    """Loss of predicting `targets` from `hidden` through the output projection `weight`, in nats.

    `bias` is added to the logits, but not trained (Marian, BART).

    One pass: sum over rows of -sum_v q_v log p_v with q = (1 - epsilon) onehot + epsilon / vocab.
    Two passes (the same rows under two dropout masks): the mean of both plus r_drop / 4 times the symmetric
    divergence KL(p1 || p2) + KL(p2 || p1). This is half of R-Drop's objective, because it is a mean.

    Under autocast, products use its dtype; sums keep the dtype of `hidden` and `weight`.
    """
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    with torch.autocast(device, enabled=False):
        objective, nll = _ProjectedLoss.apply(hidden, weight, bias, targets, (label_smoothing, r_drop, dtype))
    return Loss(objective, {"nll": nll})


class _ProjectedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, how: tuple[Any, ...]
    ) -> tuple[Tensor, Tensor]:
        smoothing, alpha, dtype = how
        need_grad = any(ctx.needs_input_grad)
        grad_hidden = torch.empty_like(hidden) if need_grad else None
        grad_weight = torch.zeros_like(weight) if need_grad else None
        weight_sum, bias_sum = weight.sum(0), 0.0 if bias is None else bias.sum()
        factors = hidden.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
        objective = hidden.new_zeros((), dtype=torch.float64 if hidden.dtype == torch.float64 else torch.float32)
        nll = objective.clone()
        n_rows = CHUNK_ROWS * (ON_CUDA if hidden.is_cuda else 1)
        for start in range(0, targets.numel(), n_rows):
            rows = slice(start, start + n_rows)
            y = targets[rows]
            p, log_p = [], []
            for i, h in enumerate(factors[0][:, rows]):
                logits = _widened(F.linear(h, *factors[1:]), keep=bool(alpha))
                logit_y = logits.gather(1, y[:, None]).squeeze(1).to(objective.dtype)
                probabilities, log_normalizer = _softmax(logits, keep=bool(alpha))
                # log_normalizer - sum_v q_v z_v, and sum_v z_v = h . sum_v W_v + sum_v b_v
                mean_logit = ((hidden[i, rows] @ weight_sum).to(objective.dtype) + bias_sum) / len(weight)
                smoothed = log_normalizer - (1 - smoothing) * logit_y - smoothing * mean_logit
                objective += smoothed.sum() / len(hidden)
                nll += (log_normalizer - logit_y).sum() / len(hidden)
                p.append(probabilities)
                if alpha:
                    log_p.append(logits.sub_(log_normalizer[:, None]))
            grads = p
            if alpha:
                divergence, grads = _symmetric_divergence(p, log_p, alpha)
                objective += divergence
            if need_grad:
                assert grad_hidden is not None and grad_weight is not None
                for i, grad_logits in enumerate(grads):
                    h, to = factors[0][i, rows], (grad_hidden[i, rows], grad_weight)
                    _accumulate(grad_logits.to(dtype), h, factors[1], weight, y, smoothing, *to)
        if grad_hidden is not None and grad_weight is not None:  # the uniform part of q, which is the same in all rows
            grad_hidden -= smoothing / len(weight) * weight_sum
            grad_weight -= smoothing / len(weight) * factors[0].sum((0, 1), dtype=weight.dtype)
        ctx.passes = len(hidden)
        ctx.save_for_backward(grad_hidden, grad_weight)
        ctx.mark_non_differentiable(nll)
        return objective, nll

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        grad_hidden, grad_weight = ctx.saved_tensors
        scale = grads[0] / ctx.passes
        grads_given = grad_hidden * scale.to(grad_hidden.dtype), grad_weight * scale.to(grad_weight.dtype)
        return *grads_given, None, None, None


def at_least_float32(x: Tensor) -> Tensor:
    """Half precision converted to float32; float32 and float64 unchanged."""
    return x.float() if x.dtype.itemsize == 2 else x


def _widened(logits: Tensor, keep: bool) -> Tensor:
    """At least float32; the library converts row by row."""
    return logits if _by_library(logits, keep) else at_least_float32(logits)


def _by_library(logits: Tensor, keep: bool) -> bool:
    known = logits.device.type == "cpu" and logits.dtype in (torch.float32, torch.bfloat16) and logits.is_contiguous()
    return known and not keep and training_library() is not None


def _softmax(logits: Tensor, keep: bool) -> tuple[Tensor, Tensor]:
    """The probabilities, in place unless the logits are to be kept, and each row's log normaliser."""
    if _by_library(logits, keep):
        normalizers, half = logits.new_empty(len(logits), dtype=torch.float32), logits.dtype == torch.bfloat16
        shape, at, threads = logits.shape, normalizers.data_ptr(), torch.get_num_threads()
        if training_library().headwise_softmax(logits.data_ptr(), half, *shape, at, threads):
            raise MemoryError("no memory for the softmax of the loss")
        return logits, normalizers
    largest = logits.amax(1)
    p = torch.softmax(logits, 1) if keep else torch.softmax(logits, 1, out=logits)
    # The largest probability is at least 1 / vocab, so its logarithm is finite.
    return p, largest - p.amax(1).log()


def _symmetric_divergence(p: list[Tensor], log_p: list[Tensor], alpha: float) -> tuple[Tensor, list[Tensor]]:
    """alpha / 4 (KL(p1||p2) + KL(p2||p1)) and, for each pass, p plus twice the divergence's gradient by the logits.

    (Twice, because the caller halves the gradients of two passes.) By z1 that gradient is
    alpha / 4 (p1 (log p1/p2 - KL(p1||p2)) + p1 - p2), and by z2 the same with 1 and 2 exchanged.
    """
    a = alpha / 2
    ratio = log_p[0].sub_(log_p[1])
    kl_1 = torch.linalg.vecdot(p[0], ratio)[:, None]
    kl_2 = -torch.linalg.vecdot(p[1], ratio)[:, None]
    grad_1 = torch.add(1 + a - a * kl_1, ratio, alpha=a).mul_(p[0]).sub_(p[1], alpha=a)
    grad_2 = torch.add(1 + a - a * kl_2, ratio, alpha=-a).mul_(p[1]).sub_(p[0], alpha=a)
    return (kl_1 + kl_2).sum() * (a / 2), [grad_1, grad_2]


def _accumulate(
    p: Tensor, h: Tensor, factor: Tensor, weight: Tensor, y: Tensor, smoothing: float, out: Tensor, grad_w: Tensor
) -> None:
    """Write the gradient of the rows `h` to `out`, and add that of the weight to `grad_w`.

    With q the smoothed target, grad h = (p - q) W and grad W = (p - q)^T h. q is never materialised: it is one constant
    for all tokens, which the caller subtracts, plus one for the target. `factor` is W in the dtype of products.
    """
    out.copy_(p @ factor)
    out -= (1 - smoothing) * weight[y]
    if p.dtype == grad_w.dtype:
        grad_w.addmm_(p.T, h)
    else:
        grad_w += p.T @ h
    grad_w.index_add_(0, y, h.to(grad_w.dtype), alpha=-(1 - smoothing))


# --- Losses of labels and values ---


def label_loss(
    logits: Float[Tensor, "*each classes"], labels: Int[Tensor, "*each"], label_smoothing: float = 0.0
) -> Loss:
    """Label-smoothed cross-entropy in nats, and the number of correct predictions.

    Labels of texts or of tokens; `pytorch.data.tagged.IGNORED` is skipped.
    """
    correct = (logits.argmax(-1) == labels).sum()
    flat = at_least_float32(logits).flatten(0, -2)
    objective = F.cross_entropy(flat, labels.flatten(), reduction="sum", label_smoothing=label_smoothing)
    return Loss(objective, {"accuracy": correct.float()})


def binary_loss(logits: Float[Tensor, "batch classes"], labels: Float[Tensor, "batch classes"]) -> Loss:
    """Binary cross-entropy in nats, averaged over the classes of each text; also the share of right decisions."""
    logits = at_least_float32(logits)
    objective = F.binary_cross_entropy_with_logits(logits, labels.to(logits), reduction="none").mean(1).sum()
    right = ((logits.detach() > 0) == (labels > 0)).float().mean(1).sum()
    return Loss(objective, {"accuracy": right})


def squared_loss(predicted: Float[Tensor, "batch horizon"], true: Float[Tensor, "batch horizon"]) -> Loss:
    """Squared error of forecasts, averaged over the steps of each; also the absolute error."""
    error = at_least_float32(predicted) - true
    return Loss(error.square().mean(1).sum(), {"mae": error.detach().abs().mean(1).sum()})

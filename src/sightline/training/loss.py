"""Label-smoothed cross-entropy (section 5.4) and R-Drop (arXiv:2106.14448), straight from hidden states.

Logits of a batch are the largest tensor of a training step, and softmax, its gradient and the zero-filled buffers
around them cost a quarter of it on a CPU. Here output projection and loss are one function: rows are taken in chunks,
and the gradients of hidden states and projection come out of the same pass by their closed form.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from sightline.native.library import training_library

CHUNK_ROWS = 1024  # rows of logits that exist at once


@dataclass(frozen=True)
class Loss:
    """Sums over the targets of a batch: pieces of a translation, labels of texts, windows of a series."""

    objective: Float[Tensor, ""]  # what is minimised; differentiable
    figures: dict[str, Float[Tensor, ""]]  # what is logged beside it, such as "nll" or "accuracy"

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

    `bias` is added to the logits and not trained (Marian, BART).

    One pass: sum over rows of -sum_v q_v log p_v with q = (1 - epsilon) onehot + epsilon / vocab.
    Two passes (the same rows under two dropout masks): the mean of both plus r_drop / 4 times the symmetric
    divergence KL(p1 || p2) + KL(p2 || p1), which is half of R-Drop's objective, as a mean should be.
    """
    objective, nll = _ProjectedLoss.apply(hidden, weight, bias, targets, label_smoothing, r_drop)
    return Loss(objective, {"nll": nll})


class _ProjectedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float, alpha: float
    ) -> tuple[Tensor, Tensor]:
        need_grad = any(ctx.needs_input_grad)
        grad_hidden = torch.empty_like(hidden) if need_grad else None
        grad_weight = torch.zeros_like(weight) if need_grad else None
        weight_sum, bias_sum = weight.sum(0), 0.0 if bias is None else bias.sum()
        objective = hidden.new_zeros((), dtype=torch.float64 if hidden.dtype == torch.float64 else torch.float32)
        nll = objective.clone()
        for start in range(0, targets.numel(), CHUNK_ROWS):
            rows = slice(start, start + CHUNK_ROWS)
            y = targets[rows]
            p, log_p = [], []
            for h in hidden[:, rows]:
                logits = _logits(h, weight, bias)
                logit_y = logits.gather(1, y[:, None]).squeeze(1)
                probabilities, log_normalizer = _softmax(logits, keep=bool(alpha))
                # log_normalizer - sum_v q_v z_v, and sum_v z_v = h . sum_v W_v + sum_v b_v
                mean_logit = ((h @ weight_sum).to(objective.dtype) + bias_sum) / len(weight)
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
                    h = hidden[i, rows]
                    _accumulate(grad_logits, h, weight, weight_sum, y, smoothing, grad_hidden[i, rows], grad_weight)
        ctx.passes = len(hidden)
        ctx.save_for_backward(grad_hidden, grad_weight)
        ctx.mark_non_differentiable(nll)
        return objective, nll

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
        grad_hidden, grad_weight = ctx.saved_tensors
        scale = grads[0] / ctx.passes
        grads_given = grad_hidden * scale.to(grad_hidden.dtype), grad_weight * scale.to(grad_weight.dtype)
        return *grads_given, None, None, None, None


def _logits(h: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    logits = F.linear(h, weight, bias)
    return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits


def _softmax(logits: Tensor, keep: bool) -> tuple[Tensor, Tensor]:
    """The probabilities, in the place of the logits unless those are to be kept, and each row's log normaliser."""
    native = training_library()
    if native and not keep and logits.device.type == "cpu" and logits.dtype == torch.float32 and logits.is_contiguous():
        normalizers = logits.new_empty(len(logits))
        native.sightline_softmax(logits.data_ptr(), *logits.shape, normalizers.data_ptr(), torch.get_num_threads())
        return logits, normalizers
    largest = logits.amax(1)
    p = torch.softmax(logits, 1) if keep else torch.softmax(logits, 1, out=logits)
    # The largest probability is at least 1 / vocab, so its logarithm is safe where another's may not be.
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
    p: Tensor, h: Tensor, weight: Tensor, weight_sum: Tensor, y: Tensor, smoothing: float, out: Tensor, grad_w: Tensor
) -> None:
    """Add the gradient of the rows `h` to `grad_w` and write that of `h` itself to `out`.

    With q the smoothed target, grad h = (p - q) W and grad W = (p - q)^T h; q is never formed: it is one number for
    all pieces plus one for the target.
    """
    p = p.to(h.dtype)
    uniform = smoothing / len(weight)
    grad_h = p @ weight.to(h.dtype)
    grad_h -= (1 - smoothing) * weight[y]
    grad_h -= uniform * weight_sum
    out.copy_(grad_h)
    if p.dtype == grad_w.dtype:
        grad_w.addmm_(p.T, h)
    else:
        grad_w += p.T @ h
    h = h.to(grad_w.dtype)
    grad_w.index_add_(0, y, h, alpha=-(1 - smoothing))
    grad_w -= uniform * h.sum(0)

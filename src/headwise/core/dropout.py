"""Section 5.4: residual dropout, with two random bytes an element instead of a float.

On a CPU the random numbers and masks of torch's dropout take over a tenth of a training step (`benchmarks/`). Here an
element takes 16 random bits, so the probability is rounded to a multiple of 1/65536 and the scale to match. With the
compiled library one pass samples, drops and adds, and no mask is stored. On other devices this is torch's dropout.
"""

from typing import Any

import torch
from jaxtyping import Float, Int16
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.core import training_library

_LEVELS = 1 << 16


class Dropout(nn.Module):
    """In training zeroes each element with probability `p` and divides the rest by 1 - p; otherwise the identity."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Float[Tensor, "*any"], residual: Float[Tensor, "*any"] | None = None) -> Float[Tensor, "*any"]:
        """dropout(x), or residual + dropout(x) in one pass; same shape in and out."""
        if self.training and self.p > 0.0:
            if x.device.type == "cpu" and not torch.compiler.is_compiling():
                return _CheapDropout.apply(x, residual, self.p)
            x = F.dropout(x, self.p)
        return x if residual is None else residual + x


class _CheapDropout(torch.autograd.Function):
    """residual + scale * kept * x.

    The compiled library samples again from the same seed in the backward pass. Torch uses a mask of 16-bit numbers,
    because its comparisons and products with bools are slow.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, residual: Tensor | None, p: float) -> Tensor:
        dropped = min(max(round(p * _LEVELS), 1), _LEVELS - 1)
        ctx.dropped, ctx.scale = dropped, _LEVELS / (_LEVELS - dropped)
        if training_library() and _is_dense(x) and (residual is None or _is_dense(residual, torch.float32)):
            ctx.seed = int(torch.empty((), dtype=torch.int64).random_(-(2**63), None))
            ctx.dtype = x.dtype
            return _drop(x, residual, ctx.seed, dropped, ctx.scale, x.dtype if residual is None else torch.float32)
        ctx.seed = None
        mask = _random_mask(x, dropped)
        ctx.save_for_backward(mask)
        if residual is None:
            return mask.to(x.dtype).mul_(x).mul_(ctx.scale)
        return torch.addcmul(residual, x, mask.to(x.dtype), value=ctx.scale)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None]:
        grad = grads[0]
        if ctx.seed is None:
            (mask,) = ctx.saved_tensors
            kept = mask.to(grad.dtype).mul_(grad).mul_(ctx.scale)
        else:
            kept = _drop(grad.contiguous(), None, ctx.seed, ctx.dropped, ctx.scale, ctx.dtype)
        return kept, grad if ctx.needs_input_grad[1] else None, None


def _is_dense(x: Tensor, *dtypes: torch.dtype) -> bool:
    return x.dtype in (dtypes or (torch.float32, torch.bfloat16)) and x.is_contiguous()


def _drop(x: Tensor, residual: Tensor | None, seed: int, dropped: int, scale: float, dtype: torch.dtype) -> Tensor:
    """residual + dropout(x) by the library, as `dtype`."""
    assert residual is None or residual.shape == x.shape
    out = torch.empty_like(x, dtype=dtype)
    at, threads = None if residual is None else residual.data_ptr(), torch.get_num_threads()
    given, taken = ((y.data_ptr(), y.dtype == torch.bfloat16) for y in (x, out))
    training_library().headwise_drop(*given, at, seed, dropped, scale, x.numel(), *taken, threads)
    return out


def _random_mask(like: Float[Tensor, "*any"], dropped: int) -> Int16[Tensor, "*any"]:
    """0 for `dropped` out of 65536 random values, 1 for the rest."""
    samples = torch.empty((like.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    smallest_kept = dropped - _LEVELS // 2
    mask = samples.view(torch.int16)[: like.numel()].view(like.shape)
    return mask.clamp_(smallest_kept - 1, smallest_kept).sub_(smallest_kept - 1)

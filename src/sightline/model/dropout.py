"""Section 5.4: residual dropout, with a mask that costs two random bytes an element instead of a float.

On a CPU the random numbers and masks of torch's dropout take over a tenth of a training step (`benchmarks/`). Here one
64-bit draw serves four elements, so the probability is a multiple of 1/65536; the scale makes up for exactly what was
dropped. Elsewhere than on a CPU this is torch's own dropout.
"""

from typing import Any

import torch
from jaxtyping import Float, Int16
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.native.library import library

_LEVELS = 1 << 16


class Dropout(nn.Module):
    """In training zeroes each element with probability `p` and divides the rest by 1 - p; otherwise the identity."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Float[Tensor, "*any"], residual: Float[Tensor, "*any"] | None = None) -> Float[Tensor, "*any"]:
        """dropout(x), or residual + dropout(x) in one go; same shape in and out."""
        if self.training and self.p > 0.0:
            if x.device.type == "cpu" and not torch.compiler.is_compiling():
                return _CheapDropout.apply(x, residual, self.p)
            x = F.dropout(x, self.p)
        return x if residual is None else residual + x

    def extra_repr(self) -> str:
        return f"p={self.p}"


class _CheapDropout(torch.autograd.Function):
    """residual + scale * kept * x; the draws are kept instead of a mask."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, residual: Tensor | None, p: float) -> Tensor:
        dropped = min(max(round(p * _LEVELS), 1), _LEVELS - 1)
        ctx.smallest_kept, ctx.scale = dropped - _LEVELS // 2, _LEVELS / (_LEVELS - dropped)
        draws = _draws(x)
        ctx.save_for_backward(draws)
        return _drop(x, residual, draws, ctx.smallest_kept, ctx.scale)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None]:
        (grad,), (draws,) = grads, ctx.saved_tensors
        kept = _drop(grad, None, draws, ctx.smallest_kept, ctx.scale)
        return kept, grad if ctx.needs_input_grad[1] else None, None


def _draws(like: Float[Tensor, "*any"]) -> Int16[Tensor, "*any"]:
    """Independent numbers, all of 16 bits equally likely."""
    draws = torch.empty((like.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    return draws.view(torch.int16)[: like.numel()].view(like.shape)


def _drop(x: Tensor, residual: Tensor | None, draws: Int16[Tensor, "*any"], smallest_kept: int, scale: float) -> Tensor:
    """residual + scale * x where the draw is at least `smallest_kept`, elsewhere the residual alone."""
    native, given = library(), [x] if residual is None else [x, residual]
    if native and all(t.dtype == torch.float32 and t.is_contiguous() for t in given):
        out = torch.empty_like(x)
        at = [None if t is None else t.data_ptr() for t in (x, residual, draws)]
        native.sightline_drop(*at, smallest_kept, scale, x.numel(), out.data_ptr())
        return out
    # torch's comparisons and products with bools are slow: a mask of numbers
    mask = draws.clamp(smallest_kept - 1, smallest_kept).sub_(smallest_kept - 1).to(x.dtype)
    return mask.mul_(x).mul_(scale) if residual is None else torch.addcmul(residual, x, mask, value=scale)

"""Section 5.4: residual dropout, with a mask that costs two random bytes an element instead of a float.

On a CPU the random numbers of torch's dropout take over a tenth of a training step (`benchmarks/`). Here one 64-bit
draw serves four elements, so the probability is a multiple of 1/65536; the scale makes up for exactly what was
dropped. Elsewhere than on a CPU this is torch's own dropout.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

_LEVELS = 1 << 16


class Dropout(nn.Module):
    """In training zeroes each element with probability `p` and divides the rest by 1 - p; otherwise the identity."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """Same shape in and out."""
        if not self.training or self.p == 0.0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        return _ByteDropout.apply(x, self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class _ByteDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        dropped = min(round(p * _LEVELS), _LEVELS - 1)
        draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        keep = draws.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - _LEVELS // 2
        ctx.scale = _LEVELS / (_LEVELS - dropped)
        ctx.save_for_backward(keep)
        return (x * keep).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return (grads[0] * keep).mul_(ctx.scale), None

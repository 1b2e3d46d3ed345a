"""Rotary position embeddings (RoPE, arXiv:2104.09864): queries and keys are rotated by their positions."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.config.positions import rotary_frequencies
from headwise.core.cache import StepPosition
from headwise.core.masks import PackedRows


def rotary_rates(width: int, base: float) -> Float[Tensor, " pairs"]:
    """base^(-2i/width): the rotation of each of the width / 2 pairs, radians a position."""
    return torch.from_numpy(rotary_frequencies(width, base))


class Rotary(nn.Module):
    """Rotates pairs (x_i, x_{i + width/2}) of the first `width` components by position * rate_i.

    The product of a query and a key then depends only on their distance. All layers share one module.
    """

    def __init__(self, rates: Float[Tensor, " pairs"]) -> None:
        super().__init__()
        self.rates = rates  # not a buffer: half precision would change the angles of far positions
        self.register_buffer("cos", torch.empty(0, 2 * len(rates)), persistent=False)
        self.register_buffer("sin", torch.empty(0, 2 * len(rates)), persistent=False)

    def forward(
        self, x: Float[Tensor, "batch heads length d_head"], start: int | PackedRows | StepPosition
    ) -> Float[Tensor, "batch heads length d_head"]:
        """`x` rotated; `start` is the position of the first or only vector, or the rows of a packed batch."""
        if isinstance(start, int):
            end, at = start + x.size(2), slice(start, start + x.size(2))
        elif isinstance(start, StepPosition):
            end, at = start.bound, start.index
        else:
            end, at = start.longest, start.positions
        if end > len(self.cos):
            self._grow(max(64, end, 2 * len(self.cos)), x.device)
        cos, sin = (table[at].to(x.dtype) for table in (self.cos, self.sin))
        rotated, rest = x[..., : cos.size(-1)], x[..., cos.size(-1) :]
        first, second = rotated.chunk(2, -1)
        rotated = rotated * cos + torch.cat([-second, first], -1) * sin
        return torch.cat([rotated, rest], -1) if rest.size(-1) else rotated

    def _grow(self, length: int, device: torch.device) -> None:
        with torch.inference_mode(False):
            angles = torch.arange(length, device=device).float().unsqueeze(1) * self.rates.to(device)
            angles = torch.cat([angles, angles], -1)
            self.cos, self.sin = angles.cos(), angles.sin()

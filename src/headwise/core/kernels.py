"""Variants of the attention function (section 3.2): sliding windows, soft-capped scores.

Each is a `Kernel` of multi-head attention. The paper's is `attention.DotProduct`; rotary positions are in `rotary.py`.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.core.attention import Kernel, masked_softmax
from headwise.core.masks import Mask, within_window


class Capped:
    """Attention with soft-capped scores: cap * tanh(scores / cap) (Gemma 2, arXiv:2408.00118, 2.2)."""

    def __init__(self, scale: float, cap: float) -> None:
        self.scale = scale
        self.cap = cap

    def __call__(
        self,
        q: Float[Tensor, "batch heads queries d_head"],
        k: Float[Tensor, "batch kv_heads keys d_head"],
        v: Float[Tensor, "batch kv_heads keys d_head"],
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries d_head"]:
        """See `Kernel`."""
        return self.weights(q, k, mask) @ v.repeat_interleave(q.size(1) // v.size(1), 1)

    def weights(self, q: Tensor, k: Tensor, mask: Mask) -> Tensor:
        """See `Kernel`."""
        k = k.repeat_interleave(q.size(1) // k.size(1), 1)
        return masked_softmax(self.cap * torch.tanh(self.scale * q @ k.transpose(-2, -1) / self.cap), mask)


class Windowed:
    """Sliding-window attention over positions at a distance below `width` (Mistral, arXiv:2310.06825).

    A causal mask leaves the last `width` positions, the query's included; in an encoder (ModernBERT, arXiv:2412.13663)
    the window has both sides.
    """

    def __init__(self, kernel: Kernel, width: int) -> None:
        self.kernel = kernel
        self.width = width

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """See `Kernel`."""
        return self.kernel(q, k, v, self._window_mask(q, k, mask))

    def weights(self, q: Tensor, k: Tensor, mask: Mask) -> Tensor:
        """See `Kernel`."""
        return self.kernel.weights(q, k, self._window_mask(q, k, mask))

    def _window_mask(self, q: Tensor, k: Tensor, mask: Mask) -> Mask:
        queries, keys = q.size(2), k.size(2)
        if keys <= self.width:
            return mask
        near = within_window(queries, keys, self.width, q.device)[None, None]
        return near if mask is None else mask & near

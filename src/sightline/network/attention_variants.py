"""Section 3.2 as the families vary it: fewer heads of keys and values, positions inside attention, other scales.

Each variation is a module or a function given when the network is built; `GroupedAttention` asks nothing. The paper's
own attention is in `attention.py`, and what positions do to queries and keys in `position_variants.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.network.attention import MultiHeadAttention
from sightline.network.cache import LayerCache
from sightline.network.masks import Padded, within_window

Narrowing = Callable[[Padded, int, int, torch.device], Padded]  # a mask for so many queries and keys to a narrower one
Kernel = Callable[[Tensor, Tensor, Tensor, Padded], Tensor]  # queries, keys, values and mask to the heads' outputs


class GroupedAttention(MultiHeadAttention):
    """Multi-head attention whose heads of queries share `n_kv_heads` heads of keys and values.

    arXiv:2305.13245; as many as there are heads is the paper's attention, one is multi-query attention
    (arXiv:1911.02150).

    Args:
        biased: which of the projections have a bias, of "qkvo".
        q_norm, k_norm: what every head's queries and keys go through (Qwen3 normalises them).
        rotate: turns queries and keys by their position (`Rotary`); called with the first one's position.
        narrow: narrows the mask to what a position may reach (a sliding window).
        kernel: the attention function itself.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_kv_heads: int,
        d_head: int,
        biased: str,
        q_norm: nn.Module,
        k_norm: nn.Module,
        rotate: nn.Module,
        narrow: Narrowing,
        kernel: Kernel,
    ) -> None:
        nn.Module.__init__(self)
        self.n_heads = n_heads
        self.d_head = d_head
        self.q_proj = nn.Linear(d_model, n_heads * d_head, bias="q" in biased)
        self.k_proj = nn.Linear(d_model, n_kv_heads * d_head, bias="k" in biased)
        self.v_proj = nn.Linear(d_model, n_kv_heads * d_head, bias="v" in biased)
        self.o_proj = nn.Linear(n_heads * d_head, d_model, bias="o" in biased)
        self.q_norm, self.k_norm = q_norm, k_norm
        self.rotate = rotate
        self.narrow = narrow
        self.kernel = kernel

    def forward(
        self,
        x: Float[Tensor, "batch queries d_model"],
        memory: Float[Tensor, "batch keys d_model"],
        mask: Any,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "batch queries d_model"]:
        """As `MultiHeadAttention.forward`, of padded sentences."""
        q = self.rotate(self.q_norm(self.split_heads(self.q_proj(x))), cache.length if cache else 0)
        k, v = self.keys_and_values(memory, cache)
        heads = self.kernel(q, k, v, self.narrow(mask, q.size(2), k.size(2), q.device))
        return self.o_proj(self.merge_heads(heads))

    def keys_and_values(
        self, memory: Float[Tensor, "batch keys d_model"], cache: LayerCache | None
    ) -> tuple[Float[Tensor, "batch kv_heads all_keys d_head"], Float[Tensor, "batch kv_heads all_keys d_head"]]:
        """As `MultiHeadAttention.keys_and_values`; keys are kept as they are turned."""
        if cache is not None and cache.complete:
            return cache.read()
        k = self.rotate(self.k_norm(self.split_heads(self.k_proj(memory))), cache.length if cache else 0)
        v = self.split_heads(self.v_proj(memory))
        return (k, v) if cache is None else cache.append(k, v)

    def split_heads(self, x: Float[Tensor, "batch length width"]) -> Float[Tensor, "batch heads length d_head"]:
        """As `MultiHeadAttention.split_heads`, for however many heads there are in `x`."""
        return x.unflatten(-1, (-1, self.d_head)).transpose(1, 2)


def unrestricted(mask: Padded, queries: int, keys: int, device: torch.device) -> Padded:
    """No window."""
    return mask


def sliding_window(width: int) -> Narrowing:
    """What narrows a mask to the last `width` positions, the query's own included (arXiv:2310.06825)."""

    def narrow(mask: Padded, queries: int, keys: int, device: torch.device) -> Padded:
        if keys <= width:
            return mask
        near = within_window(queries, keys, width, device)[None, None]
        return near if mask is None else mask & near

    return narrow


@dataclass(frozen=True)
class ScaledKernel:
    """Torch's fused attention with the factor `scale` on the scores; heads of keys and values may be fewer."""

    scale: float

    def __call__(
        self,
        q: Float[Tensor, "batch heads queries d_head"],
        k: Float[Tensor, "batch kv_heads keys d_head"],
        v: Float[Tensor, "batch kv_heads keys d_head"],
        mask: Padded,
    ) -> Float[Tensor, "batch heads queries d_head"]:
        """What the heads attend to."""
        grouped = k.size(1) != q.size(1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=self.scale, enable_gqa=grouped)


def capped_kernel(scale: float, cap: float) -> Kernel:
    """Attention whose scores stay within -cap ... cap: cap * tanh(scores / cap) (Gemma 2, arXiv:2408.00118, 2.2)."""

    def attend(
        q: Float[Tensor, "batch heads queries d_head"],
        k: Float[Tensor, "batch kv_heads keys d_head"],
        v: Float[Tensor, "batch kv_heads keys d_head"],
        mask: Bool[Tensor, "#batch #heads #queries keys"] | None,
    ) -> Float[Tensor, "batch heads queries d_head"]:
        k, v = (x.repeat_interleave(q.size(1) // k.size(1), 1) for x in (k, v))
        scores = cap * torch.tanh(scale * q @ k.transpose(-2, -1) / cap)
        if mask is not None:
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        return scores.softmax(-1) @ v

    return attend

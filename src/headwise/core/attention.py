"""Section 3.2: scaled dot-product attention and multi-head attention.

`scaled_dot_product_attention` spells the formula out and returns the weights; `DotProduct` is the same function
through torch's fused kernel, which never materialises them. Masks are in `masks.py`, other attention functions in
`kernels.py`, rotary positions in `rotary.py`.
"""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.core.cache import LayerCache, StepPosition
from headwise.core.masks import LayerMask, Mask, Packing, within_window


def scaled_dot_product_attention(
    q: Float[Tensor, "batch heads queries d_k"],
    k: Float[Tensor, "batch heads keys d_k"],
    v: Float[Tensor, "batch heads keys d_v"],
    mask: Bool[Tensor, "#batch #heads #queries keys"] | None = None,
) -> tuple[Float[Tensor, "batch heads queries d_v"], Float[Tensor, "batch heads queries keys"]]:
    """softmax(Q K^T / sqrt(d_k)) V and its weights (equation 1).

    `mask` is True where a query may attend. A query that may attend to nothing gets weights and output of zero;
    the formula would give NaN.
    """
    weights = masked_softmax(q @ k.transpose(-2, -1) * q.size(-1) ** -0.5, mask)
    return weights @ v, weights


def masked_softmax(scores: Float[Tensor, "batch heads queries keys"], mask: Mask) -> Float[Tensor, "..."]:
    """Softmax of scores; a float mask is added (relative positions), a boolean mask excludes keys."""
    if mask is None:
        return scores.softmax(-1)
    if mask.dtype != torch.bool:
        return (scores + mask).softmax(-1)
    # The lowest finite number, not -inf: softmax of a row of -inf is NaN, and the multiplication clears it anyway.
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1) * mask


@runtime_checkable
class Kernel(Protocol):
    """The attention function of multi-head attention."""

    def __call__(
        self,
        q: Float[Tensor, "batch heads queries d_k"],
        k: Float[Tensor, "batch kv_heads keys d_k"],
        v: Float[Tensor, "batch kv_heads keys d_v"],
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries d_v"]:
        """The heads' outputs; several query heads may share one head of keys and values (grouped-query attention)."""
        ...

    def weights(
        self, q: Float[Tensor, "batch heads queries d_k"], k: Float[Tensor, "batch kv_heads keys d_k"], mask: Mask
    ) -> Float[Tensor, "batch heads queries keys"]:
        """The attention weights, for inspection."""
        ...


class DotProduct:
    """softmax(scale Q K^T) V through torch's fused kernel; a scale of 0 is the paper's d_k^-1/2."""

    def __init__(self, scale: float = 0.0) -> None:
        self.scale = scale

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """See `Kernel`."""
        grouped = k.size(1) != q.size(1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=self.scale or None, enable_gqa=grouped)

    def weights(self, q: Tensor, k: Tensor, mask: Mask) -> Tensor:
        """See `Kernel`."""
        k = k.repeat_interleave(q.size(1) // k.size(1), 1)
        return masked_softmax(q @ k.transpose(-2, -1) * (self.scale or q.size(-1) ** -0.5), mask)


class NoRotation(nn.Module):
    """Identity, used without rotary positions (`rotary.Rotary`)."""

    def forward(
        self, x: Float[Tensor, "batch heads length d_k"], start: object
    ) -> Float[Tensor, "batch heads length d_k"]:
        """`x` itself."""
        return x


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O, head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V) (3.2.2).

    Deviation, as in every implementation we know: the projections have biases, which the paper does not mention.

    Args:
        d_k, d_v: width of a head's queries and keys, and of its values.
        n_kv_heads: heads of keys and values (grouped-query attention, arXiv:2305.13245); 0 = `n_heads`, as in the
            paper; 1 is multi-query attention (arXiv:1911.02150).
        biased: the projections with a bias, a subset of "qkvo".
        kernel: the attention function; None is the paper's.
        q_norm, k_norm: norms of every head's queries and keys (Qwen3).
        rotate: rotates queries and keys by their position (`rotary.Rotary`); called with the first one's position.
        d_memory: width of what keys and values are made from; 0 = `d_model`.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_k: int,
        d_v: int,
        n_kv_heads: int = 0,
        biased: str = "qkvo",
        kernel: Kernel | None = None,
        q_norm: nn.Module | None = None,
        k_norm: nn.Module | None = None,
        rotate: nn.Module | None = None,
        d_memory: int = 0,
    ) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.n_kv_heads = n_kv_heads or n_heads
        self.q_proj = nn.Linear(d_model, n_heads * d_k, bias="q" in biased)
        self.k_proj = nn.Linear(d_memory or d_model, self.n_kv_heads * d_k, bias="k" in biased)
        self.v_proj = nn.Linear(d_memory or d_model, self.n_kv_heads * d_v, bias="v" in biased)
        self.o_proj = nn.Linear(n_heads * d_v, d_model, bias="o" in biased)
        self.kernel = kernel or DotProduct()
        self.q_norm, self.k_norm = q_norm or nn.Identity(), k_norm or nn.Identity()
        self.rotate = rotate or NoRotation()

    def forward(
        self,
        x: Float[Tensor, "batch queries d_model"],
        memory: Float[Tensor, "batch keys d_memory"] | None,
        mask: LayerMask,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "batch queries d_model"]:
        """Queries from `x`, keys and values from `memory` and from `cache`; self-attention if `memory` is None."""
        if isinstance(mask, Packing):
            heads = mask.attend(self.kernel, *self.packed_heads(x, memory, mask), mask)
        else:
            q = self.queries(x, cache.start if cache else 0)
            k, v = self.keys_and_values(x if memory is None else memory, cache)
            heads = self.kernel(q, k, v, self.kernel_mask(q, k, mask))
        return self.o_proj(merge_heads(heads))

    def kernel_mask(
        self, q: Float[Tensor, "batch heads queries d_k"], k: Float[Tensor, "batch kv_heads keys d_k"], mask: Any
    ) -> Mask:
        """The mask of the kernel, which here does not depend on queries and keys (`disentangled`)."""
        return mask

    def queries(
        self, x: Float[Tensor, "batch queries d_model"], start: int | StepPosition
    ) -> Float[Tensor, "batch heads queries d_k"]:
        """The queries of every head; the first one has position `start`."""
        return self.rotate(self.q_norm(split_heads(self.q_proj(x), self.n_heads)), start)

    def keys_and_values(
        self, memory: Float[Tensor, "batch keys _"], cache: LayerCache | None
    ) -> tuple[Float[Tensor, "batch kv_heads all_keys d_k"], Float[Tensor, "batch kv_heads all_keys d_v"]]:
        """Keys and values of `memory`, appended to those in `cache`; cached keys are already rotated."""
        if cache is not None and cache.complete:
            return cache.read()
        k = self.k_norm(split_heads(self.k_proj(memory), self.n_kv_heads))
        k = self.rotate(k, cache.start if cache else 0)
        v = split_heads(self.v_proj(memory), self.n_kv_heads)
        return (k, v) if cache is None else cache.append(k, v)

    def packed_heads(
        self, x: Float[Tensor, "1 rows d_model"], memory: Float[Tensor, "1 keys d_model"] | None, packing: Packing
    ) -> list[Float[Tensor, "1 heads _ _"]]:
        """Queries, keys and values of a packed batch; projections of the same input are one matrix product.

        Under autocast, norms and rotations of heads are in float32.
        """
        if memory is None:
            projected = project(x, self.q_proj, self.k_proj, self.v_proj)
        else:
            projected = [self.q_proj(x), *project(memory, self.k_proj, self.v_proj)]
        q, k, v = (split_heads(y, n) for y, n in zip(projected, (self.n_heads, *2 * (self.n_kv_heads,)), strict=True))
        if not self.plain_heads:
            wide = torch.promote_types(q.dtype, torch.float32)
            q = self.rotate(self.q_norm(q.to(wide)), packing.queries).to(q.dtype)
            k = self.rotate(self.k_norm(k.to(wide)), packing.queries).to(k.dtype)
        return [q, k, v]

    @property
    def plain_heads(self) -> bool:
        """Whether queries and keys are plain projections, neither normalised nor rotated."""
        return isinstance(self.rotate, NoRotation) and isinstance(self.q_norm, nn.Identity)


def project(x: Float[Tensor, "1 rows d_model"], *projections: nn.Linear) -> Sequence[Float[Tensor, "1 rows _"]]:
    """The outputs of `projections`, from one matrix product.

    Concatenating the weights costs a copy, but the gradient of `x` then takes one product instead of several and their
    sum.
    """
    if any(type(projection) is not nn.Linear for projection in projections):  # with adapters
        return [projection(x) for projection in projections]
    weight = torch.cat([projection.weight for projection in projections])
    biases: list[Tensor] = [projection.bias for projection in projections if projection.bias is not None]
    joined = F.linear(x, weight, torch.cat(biases) if biases else None)
    return joined.split([projection.out_features for projection in projections], -1)


def split_heads(x: Float[Tensor, "batch length width"], n_heads: int) -> Float[Tensor, "batch heads length d_head"]:
    """(batch, length, heads * d_head) -> (batch, heads, length, d_head)."""
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def merge_heads(x: Float[Tensor, "batch heads length d_head"]) -> Float[Tensor, "batch length width"]:
    """(batch, heads, length, d_head) -> (batch, length, heads * d_head)."""
    return x.transpose(1, 2).flatten(2)


# Variants of the attention function (section 3.2): sliding windows, soft-capped scores.
#
# Each is a `Kernel` of multi-head attention. The paper's is `DotProduct`.


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

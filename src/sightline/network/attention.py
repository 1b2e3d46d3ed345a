"""Section 3.2: scaled dot-product attention and multi-head attention.

Two kernels compute the same function. `scaled_dot_product_attention` is the formula written out and returns the
weights; `fused_attention` is torch's kernel, which never materialises them. Masks are made in `masks.py`.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.network.cache import LayerCache
from sightline.network.masks import Mask
from sightline.network.packing import Packing, packed_attention


def scaled_dot_product_attention(
    q: Float[Tensor, "batch heads queries d_k"],
    k: Float[Tensor, "batch heads keys d_k"],
    v: Float[Tensor, "batch heads keys d_v"],
    mask: Bool[Tensor, "#batch #heads #queries keys"] | None = None,
) -> tuple[Float[Tensor, "batch heads queries d_v"], Float[Tensor, "batch heads queries keys"]]:
    """softmax(Q K^T / sqrt(d_k)) V and its weights (equation 1).

    `mask` is True where a query may attend. A query that may attend to nothing gets weights and output of zero,
    where the bare formula would give NaN.
    """
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is None:
        weights = scores.softmax(-1)
    else:
        # The lowest finite number, not -inf: a row of -inf has no softmax, and the multiplication clears it anyway.
        weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1) * mask
    return weights @ v, weights


def fused_attention(
    q: Float[Tensor, "batch heads queries d_k"],
    k: Float[Tensor, "batch heads keys d_k"],
    v: Float[Tensor, "batch heads keys d_v"],
    mask: Bool[Tensor, "#batch #heads #queries keys"] | Float[Tensor, "#batch #heads #queries keys"] | None = None,
) -> Float[Tensor, "batch heads queries d_v"]:
    """The same function through torch's fused kernel, without the weights."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def project(x: Float[Tensor, "... d_model"], *projections: nn.Linear) -> tuple[Float[Tensor, "... _"], ...]:
    """Each of `projections` of `x`; where gradients are wanted, by one matrix product.

    Joining the weights costs a copy of them; having the gradient of `x` from one product instead of a sum of several
    saves more than that. Without gradients it does not pay.
    """
    if not torch.is_grad_enabled():
        return tuple(projection(x) for projection in projections)
    return project_jointly(x, *projections).split([projection.out_features for projection in projections], -1)


def project_jointly(x: Float[Tensor, "... d_model"], *projections: nn.Linear) -> Float[Tensor, "... _"]:
    """What each of `projections` makes of `x`, side by side, by one matrix product."""
    weight = torch.cat([projection.weight for projection in projections])
    bias = torch.cat([projection.bias for projection in projections])
    return F.linear(x, weight, bias)


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O, head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V) (3.2.2).

    Deviation, shared with every implementation we know: the projections carry biases, of which the paper is silent.
    """

    def __init__(self, d_model: int, n_heads: int, d_k: int, d_v: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.q_proj = nn.Linear(d_model, n_heads * d_k)
        self.k_proj = nn.Linear(d_model, n_heads * d_k)
        self.v_proj = nn.Linear(d_model, n_heads * d_v)
        self.o_proj = nn.Linear(n_heads * d_v, d_model)

    def forward(
        self,
        x: Float[Tensor, "batch queries d_model"],
        memory: Float[Tensor, "batch keys d_model"],
        mask: Mask,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "batch queries d_model"]:
        """Queries from `x`, keys and values from `memory` (the same tensor in self-attention) and from `cache`."""
        if isinstance(mask, Packing):
            return self.o_proj(self._packed(x, memory, mask))
        if memory is x and cache is None:
            q, k, v = map(self.split_heads, project(x, self.q_proj, self.k_proj, self.v_proj))
        else:
            q = self.split_heads(self.q_proj(x))
            k, v = self.keys_and_values(memory, cache)
        heads = fused_attention(q, k, v, mask)
        return self.o_proj(self.merge_heads(heads))

    def _packed(
        self, x: Float[Tensor, "1 queries d_model"], memory: Float[Tensor, "1 keys d_model"], packing: Packing
    ) -> Float[Tensor, "1 queries width"]:
        widths = self.q_proj.out_features // self.n_heads, self.v_proj.out_features // self.n_heads
        if memory is x:
            q, kv = project_jointly(x[0], self.q_proj, self.k_proj, self.v_proj), None
        else:
            q, kv = self.q_proj(x[0]), project_jointly(memory[0], self.k_proj, self.v_proj)
        return packed_attention(q, kv, self.n_heads, widths, packing)[None]

    def keys_and_values(
        self, memory: Float[Tensor, "batch keys d_model"], cache: LayerCache | None
    ) -> tuple[Float[Tensor, "batch heads all_keys d_k"], Float[Tensor, "batch heads all_keys d_v"]]:
        """Keys and values of `memory`, joined with those `cache` holds already."""
        if cache is not None and cache.complete:
            return cache.read()
        k, v = map(self.split_heads, project(memory, self.k_proj, self.v_proj))
        return (k, v) if cache is None else cache.append(k, v)

    def split_heads(self, x: Float[Tensor, "batch length width"]) -> Float[Tensor, "batch heads length d_head"]:
        """(batch, length, heads * d_head) -> (batch, heads, length, d_head)."""
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

    def merge_heads(self, x: Float[Tensor, "batch heads length d_head"]) -> Float[Tensor, "batch length width"]:
        """(batch, heads, length, d_head) -> (batch, length, heads * d_head)."""
        return x.transpose(1, 2).flatten(2)

"""Disentangled attention (DeBERTa, arXiv:2006.03654): scores between contents and relative positions.

Other relative positions are in `relative.py`, rotary ones in `rotary.py`.
"""

import math
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headwise.core.attention import MultiHeadAttention, split_heads
from headwise.core.dropout import Dropout
from headwise.core.masks import Mask, RelativePositions


def signed_buckets(distance: Int[Tensor, "*any"], n_buckets: int, max_distance: int) -> Int[Tensor, "*any"]:
    """The bucket of each distance query - key, from -`n_buckets` to `n_buckets` - 1 (DeBERTa v2).

    Half of the buckets of a direction hold single distances. The widths of the others grow logarithmically up to
    `max_distance`; the last one holds everything beyond.

    >>> signed_buckets(torch.tensor([-9, -2, 0, 1, 4, 5, 9, 40]), 8, 20).tolist()
    [-6, -2, 0, 1, 4, 5, 6, 7]
    """
    single = n_buckets // 2
    far = distance.abs().clamp(min=single)
    growth = torch.log(far / single) / math.log((max_distance - 1) / single) * (single - 1)
    wide = (torch.ceil(growth).long() + single) * distance.sign()
    return torch.where(distance.abs() <= single, distance, wide).clamp(-n_buckets, n_buckets - 1)


class RelativeVectors(nn.Module):
    """A trained vector for each bucket of distances, shared by all layers of a stack; wraps the stack's mask `reach`.

    Args:
        n_buckets: buckets of each direction.
        max_distance: largest distance with its own bucket.
        norm: normalises the vectors.
    """

    def __init__(
        self, d_model: int, n_buckets: int, max_distance: int, norm: nn.Module | None, reach: nn.Module
    ) -> None:
        super().__init__()
        self.table = nn.Embedding(2 * n_buckets, d_model)
        self.norm = norm or nn.Identity()
        self.max_distance = max_distance
        self.reach = reach

    def forward(
        self, mask: Bool[Tensor, "batch keys"] | None, start: int, queries: int, device: torch.device
    ) -> RelativePositions:
        """The mask of the layers; arguments as in `masks.Everywhere.forward`."""
        n_buckets, keys = self.table.num_embeddings // 2, torch.arange(start + queries, device=device)
        bucket = signed_buckets(keys[start:].unsqueeze(1) - keys, n_buckets, self.max_distance)
        return RelativePositions(
            self.reach(mask, start, queries, device), self.norm(self.table.weight), bucket + n_buckets
        )


class DisentangledAttention(MultiHeadAttention):
    """Attention whose scores are scale * (Q_i K_j + Q_i K_d + K_j Q_d) for the distance d of the positions i and j.

    K_d and Q_d are the key and query projections of the vector of d (equation 4 of the paper, whose delta is a bucket
    in version 2).

    Args:
        kinds: the terms besides contents: "c2p" (Q_i K_d), "p2c" (K_j Q_d) or "c2p|p2c".
        scale: factor on all scores, also that of the kernel.
        dropout: on the vectors of distances.
        parts: as of `MultiHeadAttention`.
    """

    def __init__(self, kinds: str, scale: float, dropout: float, *parts: Any) -> None:
        super().__init__(*parts)
        self.kinds = kinds
        self.scale = scale
        self.distance_dropout = Dropout(dropout)

    def kernel_mask(
        self, q: Float[Tensor, "batch heads queries d_k"], k: Float[Tensor, "batch heads keys d_k"], mask: Any
    ) -> Mask:
        """The scores with positions; for pairs that may not attend the lowest finite number."""
        if not isinstance(mask, RelativePositions):
            return mask
        vectors, at = self.distance_dropout(mask.vectors).unsqueeze(0), mask.distances.expand(*q.shape[:2], -1, -1)
        scores = torch.zeros((), dtype=q.dtype, device=q.device)
        if "c2p" in self.kinds:
            keys = split_heads(self.k_proj(vectors), self.n_heads)
            scores = scores + (q @ keys.transpose(-2, -1)).gather(-1, at)
        if "p2c" in self.kinds:
            queries = split_heads(self.q_proj(vectors), self.n_heads)
            scores = scores + (k @ queries.transpose(-2, -1)).gather(-1, at.transpose(-2, -1)).transpose(-2, -1)
        bias = scores * self.scale
        return bias if mask.visible is None else bias.masked_fill(~mask.visible, torch.finfo(bias.dtype).min)

"""Relative positions: biases on attention scores (T5) instead of the position embeddings of section 3.5."""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headwise.core.cache import StepPosition


def relative_buckets(
    distance: Int[Tensor, "*any"], n_buckets: int, max_distance: int, bidirectional: bool
) -> Int[Tensor, "*any"]:
    """The bucket of each distance key - query (T5, arXiv:1910.10683, section 2.1).

    Half of the buckets hold single distances. The widths of the others grow logarithmically up to `max_distance`; the
    last one holds everything beyond. With `bidirectional` the upper half of all buckets is for keys after the query;
    otherwise those fall into bucket 0.

    >>> relative_buckets(torch.tensor([-200, -9, -8, -1, 0, 1]), 16, 128, bidirectional=False).tolist()
    [15, 8, 8, 1, 0, 0]
    """
    if bidirectional:
        n_buckets //= 2
        later = (distance > 0).long() * n_buckets
        return later + relative_buckets(-distance.abs(), n_buckets, max_distance, bidirectional=False)
    back = (-distance).clamp(min=0)
    single = n_buckets // 2
    growth = torch.log(back.float() / single) / math.log(max_distance / single) * (n_buckets - single)
    wide = single + growth.clamp(min=0).long().clamp(max=n_buckets - single - 1)
    return torch.where(back < single, back, wide)


class RelativeBias(nn.Module):
    """A trained bias for each head and bucket of distances, shared by all layers of a stack (T5).

    It wraps the stack's mask `reach`: for pairs that may not attend, it adds the lowest finite number.
    """

    def __init__(self, n_heads: int, n_buckets: int, max_distance: int, bidirectional: bool, reach: nn.Module) -> None:
        super().__init__()
        self.buckets = nn.Embedding(n_buckets, n_heads)
        self.max_distance = max_distance
        self.bidirectional = bidirectional
        self.reach = reach

    def forward(
        self, mask: Bool[Tensor, "batch keys"] | None, start: int | StepPosition, queries: int, device: torch.device
    ) -> Float[Tensor, "#batch heads queries keys"]:
        """The bias of the scores; arguments as in `masks.Everywhere.forward`."""
        if isinstance(start, StepPosition):
            distance = (start.keys() - start.index).unsqueeze(0)
        else:
            keys = torch.arange(start + queries, device=device)
            distance = keys - keys[start:].unsqueeze(1)
        bucket = relative_buckets(distance, self.buckets.num_embeddings, self.max_distance, self.bidirectional)
        bias = self.buckets(bucket).permute(2, 0, 1).unsqueeze(0)
        visible = self.reach(mask, start, queries, device)
        return bias if visible is None else bias.masked_fill(~visible, torch.finfo(bias.dtype).min)

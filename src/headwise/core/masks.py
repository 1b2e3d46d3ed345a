"""Which positions may attend to which: boolean masks, in which True means "may attend", and packed batches."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from headwise.core.cache import StepPosition


@dataclass(frozen=True, eq=False)
class PackedRows:
    """The real tokens of a padded batch, one sequence after the other.

    A GPU is not waited for: their number is given, and everything else is computed on the device.
    """

    mask: Bool[Tensor, "sequences longest"]  # True on real tokens, which come before padding
    count: int  # real tokens

    @property
    def longest(self) -> int:
        """At least the length of the longest sequence."""
        return self.mask.size(1)

    @cached_property
    def starts(self) -> Int[Tensor, " sequences_and_end"]:
        """The row at which each sequence starts, and the end; int32.

        >>> PackedRows(torch.tensor([[True, True], [True, False]]), 3).starts.tolist()
        [0, 2, 3]
        """
        return nn.functional.pad(self.mask.sum(1).cumsum(0), (1, 0)).int()

    @cached_property
    def places(self) -> Int[Tensor, " rows"]:
        """The place of each row in the flattened padded batch."""
        return torch.nonzero_static(self.mask.flatten(), size=self.count).squeeze(1)

    @cached_property
    def positions(self) -> Int[Tensor, " rows"]:
        """The position of each row in its sequence."""
        return self.places % self.longest

    def of(self, padded: Shaped[Tensor, "sequences longest *any"]) -> Shaped[Tensor, "1 rows *any"]:
        """These rows of a padded batch."""
        return padded.flatten(0, 1).index_select(0, self.places)[None]

    def padded(self, rows: Float[Tensor, "1 rows width"]) -> Float[Tensor, "sequences longest width"]:
        """The padded batch of `rows`; padding is zero."""
        flat = rows.new_zeros(self.mask.numel(), rows.size(2)).index_copy(0, self.places, rows[0])
        return flat.unflatten(0, self.mask.shape)


@dataclass(frozen=True, eq=False)
class Packing:
    """The mask of a packed batch: every position may attend to positions of the same sequence.

    A packed batch has no padding: all sequences are concatenated into one row, and the network's tensors are
    `(1, rows, d_model)`. `pytorch/training/packed.py` makes packed batches.
    """

    queries: PackedRows
    keys: PackedRows  # in self-attention the same object
    causal: bool  # no position may attend to a later one
    attend: Callable[..., Tensor]  # computes attention from (kernel, q, k, v, packing)

    def __post_init__(self) -> None:
        assert len(self.queries.mask) == len(self.keys.mask)
        assert not self.causal or self.queries is self.keys, "causal attention is self-attention"

    def causal_self_attention(self) -> "Packing":
        """The mask of causal self-attention among the queries."""
        return Packing(self.queries, self.queries, True, self.attend)


@dataclass(frozen=True, eq=False)
class RelativePositions:
    """The mask of disentangled attention: which pairs are visible, and the vector of the distance of each pair."""

    visible: Bool[Tensor, "#batch 1 #queries keys"] | None  # None = all
    vectors: Float[Tensor, "distances d_model"]
    distances: Int[Tensor, "queries keys"]  # rows of `vectors`


# The mask of a kernel; numbers are added to the scores (relative positions, T5); None = all positions.
Mask = Bool[Tensor, "#batch #heads #queries all_keys"] | Float[Tensor, "#batch #heads #queries all_keys"] | None
LayerMask = Mask | Packing | RelativePositions  # of an attention


def causal_mask(queries: int, keys: int, device: torch.device) -> Bool[Tensor, "queries keys"]:
    """Positions see themselves and earlier ones (section 3.2.3); the queries are the last of the keys.

    >>> causal_mask(2, 3, torch.device("cpu")).tolist()
    [[True, True, False], [True, True, True]]
    """
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def within_window(queries: int, keys: int, width: int, device: torch.device) -> Bool[Tensor, "queries keys"]:
    """Positions see those at a distance below `width`, on both sides; the queries are the last of the keys.

    >>> within_window(3, 4, 2, torch.device("cpu")).tolist()
    [[True, True, True, False], [False, True, True, True], [False, False, True, True]]
    """
    own = keys - queries  # the key of the first query
    return torch.ones(queries, keys, dtype=torch.bool, device=device).triu(own - width + 1).tril(own + width - 1)


def over_keys(mask: Bool[Tensor, "batch keys"] | Packing | None) -> Bool[Tensor, "batch 1 1 keys"] | Packing | None:
    """A mask of keys, broadcast over heads and queries."""
    return mask if mask is None or isinstance(mask, Packing) else mask[:, None, None, :]


class Everywhere(nn.Module):
    """The mask of an encoder: every position may attend to all real ones."""

    def forward(
        self,
        mask: Bool[Tensor, "batch keys"] | Packing | None,
        start: int | StepPosition,
        queries: int,
        device: torch.device,
    ) -> Bool[Tensor, "batch 1 1 keys"] | Packing | None:
        """`mask` is True on real keys; the first query has position `start`."""
        return over_keys(mask)


class Causal(nn.Module):
    """The mask of a decoder: every position may attend to itself and the real ones before it."""

    def forward(
        self,
        mask: Bool[Tensor, "batch keys"] | Packing | None,
        start: int | StepPosition,
        queries: int,
        device: torch.device,
    ) -> Bool[Tensor, "#batch 1 #queries keys"] | Packing | None:
        """See `Everywhere.forward`; the keys are all positions up to the last query."""
        if isinstance(mask, Packing):
            return mask.causal_self_attention()
        if isinstance(start, StepPosition):
            assert mask is None, "a step with fixed shapes has no padding"
            return start.visible()
        # A single new position may attend to everything before it: no mask, and the fastest kernel.
        earlier = causal_mask(queries, start + queries, device)[None, None] if queries > 1 else None
        real = None if mask is None else mask[:, None, None, :]
        return real if earlier is None else earlier if real is None else earlier & real

"""Permutation language modelling (XLNet, arXiv:1906.08237, sections 2.2 and 2.3): what is predicted, in which order.

Of a block one token in K = 6 is predicted, in spans of 1 to 5 tokens, each somewhere in a context of six times its
length; so many are predicted in every block of a length. The other tokens come first in every order, seen by all; those
that are predicted come in an order that is drawn, each from the others before it. What is drawn is a function of
(seed, epoch, where the block begins), so that a resumed run sees the same.

Deviations: one segment a block, and no states of the block before (`mems`). Not here: reading and tokenising
(`documents`), and the masks that an order means (`architectures.xlnet`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from headwise.data.batch_planning import Rows
from headwise.data.blocks import TokenBlocks, fixed_noised_blocks, noised_block_stream
from headwise.data.stream import EndlessStream

TOKENS_PER_PREDICTION = 6  # tokens of a text for one that is predicted
LONGEST_SPAN = 5


@dataclass(frozen=True)
class PermutedBatch(TokenBlocks):
    """Blocks of running text of one length, with an order for some of their tokens."""

    rank: Int[Tensor, "blocks length"]  # when a token is predicted, from 0; -1 = never
    places: Int[Tensor, "blocks predictions"]  # of those that are

    @property
    def targets(self) -> Int[Tensor, "blocks predictions"]:
        """What stands there."""
        return self.src.gather(1, self.places)

    @property
    def n_targets(self) -> int:
        """Tokens that are predicted."""
        return self.places.numel()


def sample_span_lengths(n: int, drawn: Iterable[int]) -> list[int]:
    """Lengths of spans as `drawn`, which sum to n.

    >>> sample_span_lengths(7, [3, 2, 5])
    [3, 2, 2]
    """
    found: list[int] = []
    lengths = iter(drawn)
    while sum(found) < n:
        found.append(min(next(lengths), n - sum(found)))
    return found


def place_spans(lengths: Sequence[int], shares: Sequence[float], length: int) -> list[int]:
    """The tokens in spans of those lengths, one context behind the other; `shares` say where in its room each begins.

    >>> place_spans([2, 1], shares=[0.5, 0.0], length=20)
    [5, 6, 12]
    """
    found, begin = [], 0
    for span, share in zip(lengths, shares, strict=True):
        context = min(TOKENS_PER_PREDICTION * span, length - begin)
        start = begin + int(share * (context - span + 1))
        found += range(start, start + span)
        begin += context
    return found


def sample_order(length: int, generator: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of so many tokens the places of those that are predicted, and when each of all is: -1 = never."""
    n = max(1, length // TOKENS_PER_PREDICTION)
    lengths = sample_span_lengths(n, generator.integers(1, LONGEST_SPAN + 1, n).tolist())
    places = np.array(place_spans(lengths, generator.random(len(lengths)).tolist(), length))
    rank = np.full(length, -1)
    rank[places] = generator.permutation(n)
    return places, rank


@dataclass(frozen=True)
class PermutedText:
    """Running text in blocks with the marks of its vocabulary behind each."""

    tokens: NDArray[np.int32]
    length: int  # of a block, with its marks
    behind: Sequence[int]

    @property
    def room(self) -> int:
        """Tokens of the text in a block."""
        return self.length - len(self.behind)

    def load(self, starts: Rows, length: int, seed: int, epoch: int) -> PermutedBatch:
        """Blocks of `length` tokens of the text, from each of `starts` on, with the order of an epoch."""
        drawn = [sample_order(length, np.random.default_rng([seed, epoch, int(start) + 1])) for start in starts]
        text = self.tokens[starts[:, None] + np.arange(length)].astype(np.int64)
        src = np.concatenate([text, np.tile(np.array(self.behind, np.int64), (len(starts), 1))], axis=1)
        rank = np.pad(np.stack([rank for _, rank in drawn]), ((0, 0), (0, len(self.behind))), constant_values=-1)
        return PermutedBatch(*map(torch.from_numpy, (src, rank, np.stack([places for places, _ in drawn]))))

    def stream(
        self, tokens_per_batch: int, seed: int, state: Mapping[str, int] | None = None, pin: bool = False
    ) -> EndlessStream[PermutedBatch]:
        """Training batches without end, from `state` on."""
        load = partial(self.load, length=self.room, seed=seed)
        return noised_block_stream(load, len(self.tokens), self.room, tokens_per_batch, seed, state, pin)

    def fixed(self, tokens_per_batch: int) -> Iterator[PermutedBatch]:
        """The whole text once, always in the same order; the last block is as long as it is."""
        return fixed_noised_blocks(self.load, len(self.tokens), self.room, tokens_per_batch)

"""Permutation language modelling (XLNet, arXiv:1906.08237, sections 2.2 and 2.3): prediction order and targets.

One token in K = 6 is predicted, in spans of 1 to 5 tokens; each span is placed at random in a context of six times its
length. The number of predictions depends only on the length of a block. The other tokens come first in the order and
are visible to all. Predicted tokens come in a random order, and each sees those before it. Everything random is a
function of (seed, epoch, start of the block), so a resumed run is identical.

Deviations: one segment per block, and no memory of the previous block (`mems`). Attention masks for an order are in
`pytorch.architectures.xlnet`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from headwise.pytorch.data.blocks import NoisyBlocks, TokenBlocks
from headwise.text.prepared.batch_planning import Rows

TOKENS_PER_PREDICTION = 6  # K
LONGEST_SPAN = 5


@dataclass(frozen=True)
class PermutedBatch(TokenBlocks):
    """Blocks of one length, with a prediction order."""

    rank: Int[Tensor, "blocks length"]  # when a token is predicted, from 0; -1 = never
    positions: Int[Tensor, "blocks predictions"]  # of the predicted tokens

    @property
    def targets(self) -> Int[Tensor, "blocks predictions"]:
        """The predicted tokens."""
        return self.src.gather(1, self.positions)

    @property
    def n_targets(self) -> int:
        return self.positions.numel()


def limit_span_lengths(n: int, sampled: Iterable[int]) -> list[int]:
    """The first of the sampled span lengths, cut so that they sum to n.

    >>> limit_span_lengths(7, [3, 2, 5])
    [3, 2, 2]
    """
    chosen: list[int] = []
    lengths = iter(sampled)
    while sum(chosen) < n:
        chosen.append(min(next(lengths), n - sum(chosen)))
    return chosen


def place_spans(lengths: Sequence[int], shares: Sequence[float], length: int) -> list[int]:
    """Positions of the tokens of consecutive spans; `shares` in [0, 1) place each span within its context.

    >>> place_spans([2, 1], shares=[0.5, 0.0], length=20)
    [5, 6, 12]
    """
    positions, begin = [], 0
    for span, share in zip(lengths, shares, strict=True):
        context = min(TOKENS_PER_PREDICTION * span, length - begin)
        start = begin + int(share * (context - span + 1))
        positions += range(start, start + span)
        begin += context
    return positions


def sample_order(length: int, generator: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions of the predicted tokens of a block, and the rank of every token (-1 = not predicted)."""
    n = max(1, length // TOKENS_PER_PREDICTION)
    lengths = limit_span_lengths(n, generator.integers(1, LONGEST_SPAN + 1, n).tolist())
    positions = np.array(place_spans(lengths, generator.random(len(lengths)).tolist(), length))
    rank = np.full(length, -1)
    rank[positions] = generator.permutation(n)
    return positions, rank


@dataclass(frozen=True)
class PermutedText(NoisyBlocks[PermutedBatch]):
    """Running text in blocks, each followed by special tokens."""

    tokens: NDArray[np.int32]
    length: int  # of a block, with its special tokens
    suffix: Sequence[int]  # special tokens after a block

    @property
    def text_length(self) -> int:
        return self.length - len(self.suffix)

    def load(self, starts: Rows, length: int, seed: int, epoch: int) -> PermutedBatch:
        orders = [sample_order(length, np.random.default_rng([seed, epoch, int(start) + 1])) for start in starts]
        text = self.tokens[starts[:, None] + np.arange(length)].astype(np.int64)
        src = np.concatenate([text, np.tile(np.array(self.suffix, np.int64), (len(starts), 1))], axis=1)
        rank = np.pad(np.stack([rank for _, rank in orders]), ((0, 0), (0, len(self.suffix))), constant_values=-1)
        positions = np.stack([positions for positions, _ in orders])
        return PermutedBatch(*map(torch.from_numpy, (src, rank, positions)))

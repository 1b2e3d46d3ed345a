"""Between the third and the fourth stage of the pipeline: several corpora as one, each as often as it shall come.

An epoch has a number of pairs of each corpus, whatever the size of that: they are drawn in an order that visits all
before any comes again and goes on from epoch to epoch, as a pure function of the epoch. So nothing is left out for
good, a batch has pairs of all, and the plan, the state and the processes that share it are those of one corpus.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import gcd
from typing import TypeVar

import numpy as np

from headwise.data.batch import Tokens
from headwise.data.batch_planning import PART, Lengths, Pairs, Rows
from headwise.data.sources import Pair

GOLDEN = (5**0.5 - 1) / 2
Numbers = TypeVar("Numbers", int, Rows)  # one, or several


@dataclass(frozen=True)
class CorpusShare:
    """A corpus, rows `first` to `first + size` of `pairs`, of which every epoch has `pairs_per_epoch`."""

    pairs: Pairs
    first: int
    size: int
    pairs_per_epoch: int

    def rows(self, numbers: Numbers) -> Numbers:
        """The rows that are drawn as those of all epochs."""
        return self.first + numbers % self.size * stride(self.size) % self.size


class Mixture:
    """An epoch of several corpora, whose rows are numbered one behind the other; see `batching.Pairs`."""

    def __init__(self, shares: Sequence[CorpusShare], epoch: int = 0) -> None:
        self.shares, self.epoch = shares, epoch
        self.starts = np.cumsum([0, *(share.pairs_per_epoch for share in shares)]).tolist()

    def in_epoch(self, epoch: int) -> "Mixture":
        """The rows that are drawn in it."""
        return Mixture(self.shares, epoch)

    @property
    def src_lengths(self) -> Lengths:
        """Pieces of every source, the end mark included; four bytes a pair."""
        return np.concatenate([self._lengths(share, share.pairs.src_lengths) for share in self.shares])

    @property
    def tgt_lengths(self) -> Lengths:
        """The same of the targets."""
        return np.concatenate([self._lengths(share, share.pairs.tgt_lengths) for share in self.shares])

    def src(self, row: int) -> Tokens:
        """Source ids, without end mark."""
        pairs, row = self._drawn(row)
        return pairs.src(row)

    def tgt(self, row: int) -> Tokens:
        """Target ids, without start or end mark."""
        pairs, row = self._drawn(row)
        return pairs.tgt(row)

    def text(self, row: int) -> Pair:
        """Both sides as text."""
        pairs, row = self._drawn(row)
        return pairs.text(row)

    def _drawn(self, row: int) -> tuple[Pairs, int]:
        i = bisect_right(self.starts, row) - 1
        share = self.shares[i]
        return share.pairs, share.rows(self.epoch * share.pairs_per_epoch + row - self.starts[i])

    def _lengths(self, share: CorpusShare, lengths: Lengths) -> Lengths:
        begin = self.epoch * share.pairs_per_epoch
        end = begin + share.pairs_per_epoch
        parts = (share.rows(np.arange(at, min(at + PART, end))) for at in range(begin, end, PART))
        return np.concatenate([np.empty(0, np.int32), *(lengths[rows] for rows in parts)])


@cache
def stride(size: int) -> int:
    """A step that visits all of `size` rows, any few in a row of which lie about evenly: near the golden section.

    >>> stride(8), [i * stride(8) % 8 for i in range(8)]
    (5, [0, 5, 2, 7, 4, 1, 6, 3])
    """
    step = max(1, round(size * GOLDEN))
    while gcd(step, size) > 1:
        step += 1
    return step


def pairs_per_epoch(sizes: Sequence[int], weights: Sequence[float], temperature: float) -> list[int]:
    """How many pairs of each corpus an epoch has; in all about as many as there are, of none less than one.

    The share of a corpus of n pairs is in proportion to weight * n ** (1 / temperature), as in arXiv:1907.05019, where
    all weights are 1.

    >>> pairs_per_epoch([900, 100], [1.0, 1.0], 2.0), pairs_per_epoch([900, 100], [1.0, 3.0], 1.0)
    ([750, 250], [750, 250])
    """
    largest = max(sizes)  # by which they are divided, so that no power is out of range
    wanted = [w * (n / largest) ** (1 / temperature) for w, n in zip(weights, sizes, strict=True)]
    return [max(1, round(sum(sizes) * one / sum(wanted))) for one in wanted]

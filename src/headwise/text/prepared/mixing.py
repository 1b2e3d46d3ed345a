"""Mix several corpora, each with its own sampling rate.

An epoch has a fixed number of pairs of each corpus, independent of its size. Pairs are visited in an order that covers
the whole corpus before any pair repeats, and that continues in the next epoch. The sample is a pure function of the
epoch, so planning, resuming and sharding work as for one corpus.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import gcd
from typing import TypeVar

import numpy as np

from headwise.text.files.sources import Pair
from headwise.text.prepared.batch_planning import PART, Lengths, Pairs, Rows
from headwise.text.tokens.pair_tokenizer import Tokens

GOLDEN = (5**0.5 - 1) / 2
Numbers = TypeVar("Numbers", int, Rows)


@dataclass(frozen=True)
class CorpusShare:
    """A corpus in a mixture: rows `first` to `first + size` of `pairs`."""

    pairs: Pairs
    first: int
    size: int
    pairs_per_epoch: int

    def rows(self, numbers: Numbers) -> Numbers:
        """The rows at these positions in the endless order of samples."""
        return self.first + numbers % self.size * stride(self.size) % self.size


class Mixture:
    """An epoch of several corpora, whose rows are numbered consecutively; implements `batch_planning.Pairs`."""

    def __init__(self, shares: Sequence[CorpusShare], epoch: int = 0) -> None:
        self.shares, self.epoch = shares, epoch
        self.starts = np.cumsum([0, *(share.pairs_per_epoch for share in shares)]).tolist()

    def in_epoch(self, epoch: int) -> "Mixture":
        """The mixture in another epoch."""
        return Mixture(self.shares, epoch)

    @property
    def src_lengths(self) -> Lengths:
        """Tokens of every source, with EOS; four bytes per pair."""
        return np.concatenate([self._lengths(share, share.pairs.src_lengths) for share in self.shares])

    @property
    def tgt_lengths(self) -> Lengths:
        """Tokens of every target, with EOS."""
        return np.concatenate([self._lengths(share, share.pairs.tgt_lengths) for share in self.shares])

    def src(self, row: int) -> Tokens:
        """Source ids, without EOS."""
        pairs, row = self._locate(row)
        return pairs.src(row)

    def tgt(self, row: int) -> Tokens:
        """Target ids, without BOS and EOS."""
        pairs, row = self._locate(row)
        return pairs.tgt(row)

    def text(self, row: int) -> Pair:
        """Source and target text."""
        pairs, row = self._locate(row)
        return pairs.text(row)

    def _locate(self, row: int) -> tuple[Pairs, int]:
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
    """A step coprime to `size`, near the golden ratio, so that consecutive samples are spread evenly.

    >>> stride(8), [i * stride(8) % 8 for i in range(8)]
    (5, [0, 5, 2, 7, 4, 1, 6, 3])
    """
    step = max(1, round(size * GOLDEN))
    while gcd(step, size) > 1:
        step += 1
    return step


def pairs_per_epoch(sizes: Sequence[int], weights: Sequence[float], temperature: float) -> list[int]:
    """The number of pairs per epoch of each corpus, at least one; the sum is about that of `sizes`.

    The share of a corpus of n pairs is proportional to weight * n ** (1 / temperature): temperature sampling as in
    arXiv:1907.05019, where all weights are 1.

    >>> pairs_per_epoch([900, 100], [1.0, 1.0], 2.0), pairs_per_epoch([900, 100], [1.0, 3.0], 1.0)
    ([750, 250], [750, 250])
    """
    largest = max(sizes)  # divide by it, so that no power overflows
    wanted = [w * (n / largest) ** (1 / temperature) for w, n in zip(weights, sizes, strict=True)]
    return [max(1, round(sum(sizes) * one / sum(wanted))) for one in wanted]

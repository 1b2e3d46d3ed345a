"""Bidirectional training as a first stage (BiT; Ding, Wu and Tao 2021, arXiv:2109.07780).

The network is first trained on source-to-target and target-to-source pairs together, then on the wanted direction.
There is no direction tag, because the language of the source implies it.
"""

from collections.abc import Iterator

import numpy as np

from headwise.core.batches import Batch
from headwise.pytorch.data.batching import PairBatches
from headwise.pytorch.data.stream import START, Cursor, Planned
from headwise.text.files.sources import Pair
from headwise.text.prepared.batch_planning import Pairs
from headwise.text.tokens.pair_tokenizer import Tokens


class BothDirections:
    """The pairs of a corpus, followed by the same pairs in the other direction."""

    def __init__(self, pairs: Pairs) -> None:
        self.pairs, self.n_pairs = pairs, len(pairs.src_lengths)
        self.src_lengths = np.concatenate([pairs.src_lengths, pairs.tgt_lengths])
        self.tgt_lengths = np.concatenate([pairs.tgt_lengths, pairs.src_lengths])

    def src(self, row: int) -> Tokens:
        """Source ids, without EOS."""
        return self.pairs.src(row) if row < self.n_pairs else self.pairs.tgt(row - self.n_pairs)

    def tgt(self, row: int) -> Tokens:
        """Target ids, without BOS and EOS."""
        return self.pairs.tgt(row) if row < self.n_pairs else self.pairs.src(row - self.n_pairs)

    def text(self, row: int) -> Pair:
        """Source and target text."""
        src, tgt = self.pairs.text(row % self.n_pairs)
        return (src, tgt) if row < self.n_pairs else (tgt, src)

    def in_epoch(self, epoch: int) -> "BothDirections":
        """Both directions of the pairs of an epoch."""
        return BothDirections(self.pairs.in_epoch(epoch))


def in_two_stages(first: PairBatches, second: PairBatches, start: Cursor) -> Iterator[Planned[Batch]]:
    """The planned batches from a cursor on: `start.left` of `first`, then those of `second`.

    The cursor holds the remaining batches of the first stage, so its end does not move when a run is resumed with more
    steps.
    """
    if start.left:
        for left, (cursor, build) in zip(range(start.left - 1, -1, -1), first.walk(start), strict=False):
            yield cursor._replace(left=left) if left else START, build
        start = START
    yield from second.walk(start)

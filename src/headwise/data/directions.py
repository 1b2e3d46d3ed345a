"""Bidirectional training as a first stage (BiT; Ding, Wu and Tao 2021, arXiv:2109.07780).

The network is first trained on source-to-target and target-to-source pairs together, then on the wanted direction.
There is no direction tag, because the language of the source implies it.
"""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from headwise.data.batch import Batch
from headwise.data.batch_planning import Pairs
from headwise.data.batching import BatchStream
from headwise.data.pair_tokenizer import Tokens
from headwise.data.sources import Pair

Open = Callable[[Mapping[str, int] | None], BatchStream]  # opens a stream at a state


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


class TwoStages:
    """The first `n_first` batches come from the stream `first`, all others from `second`.

    The state holds the remaining batches of the first stage, so its end does not move when a run is resumed with more
    steps.
    """

    def __init__(self, first: Open, second: Open, n_first: int, state: Mapping[str, int] | None = None) -> None:
        self.left = state["left"] if state else n_first
        self.wait_seconds = 0.0
        self._second = second
        self._stream = (first if self.left else second)(state)

    def state(self) -> dict[str, int]:
        """The state of the current stream, and the remaining batches of the first stage."""
        return {**self._stream.state(), "left": self.left}

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        before = self._stream.wait_seconds
        batch = next(self._stream)
        self.wait_seconds += self._stream.wait_seconds - before
        if self.left:
            self.left -= 1
            if not self.left:
                self._stream.close()
                self._stream = self._second(None)
        return batch

    def close(self) -> None:
        """Stop the thread; the stream gives no more batches."""
        self._stream.close()

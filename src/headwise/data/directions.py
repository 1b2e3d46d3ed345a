"""Between the third and the fourth stage of the pipeline: pairs read both ways round, for the first part of a training.

BiT (Ding, Wu and Tao 2021, arXiv:2109.07780): one network first learns source to target and target to source together,
then the direction that is wanted. Nothing tells it the direction: the language of the source does.
"""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from headwise.data.batch import Batch, Tokens
from headwise.data.batch_planning import Pairs
from headwise.data.batching import BatchStream
from headwise.data.sources import Pair

Open = Callable[[Mapping[str, int] | None], BatchStream]  # a stream from a state on


class BothDirections:
    """The pairs of a corpus and, numbered on behind them, the same pairs the other way round."""

    def __init__(self, pairs: Pairs) -> None:
        self.pairs, self.n_pairs = pairs, len(pairs.src_lengths)
        self.src_lengths = np.concatenate([pairs.src_lengths, pairs.tgt_lengths])
        self.tgt_lengths = np.concatenate([pairs.tgt_lengths, pairs.src_lengths])

    def src(self, row: int) -> Tokens:
        """Source ids, without end mark."""
        return self.pairs.src(row) if row < self.n_pairs else self.pairs.tgt(row - self.n_pairs)

    def tgt(self, row: int) -> Tokens:
        """Target ids, without start or end mark."""
        return self.pairs.tgt(row) if row < self.n_pairs else self.pairs.src(row - self.n_pairs)

    def text(self, row: int) -> Pair:
        """Both sides as text."""
        src, tgt = self.pairs.text(row % self.n_pairs)
        return (src, tgt) if row < self.n_pairs else (tgt, src)

    def in_epoch(self, epoch: int) -> "BothDirections":
        """Of what is read in an epoch."""
        return BothDirections(self.pairs.in_epoch(epoch))


class TwoStages:
    """Batches of a first stream until `n_first` are given, then those of a second, which begins at its beginning.

    The state says how many of the first are still to come: where that stage ends does not move when a run is resumed to
    go on for longer.
    """

    def __init__(self, first: Open, second: Open, n_first: int, state: Mapping[str, int] | None = None) -> None:
        self.left = state["left"] if state else n_first
        self.wait_seconds = 0.0
        self._second = second
        self._stream = (first if self.left else second)(state)

    def state(self) -> dict[str, int]:
        """Where the stream of this stage is, and how many batches are left of the first stage."""
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
        """End the thread; the stream gives no more batches."""
        self._stream.close()

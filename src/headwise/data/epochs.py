"""Batches epoch after epoch, planned by the epoch: for the streams of all tasks but a translator's."""

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, Generic

import numpy as np

from headwise.data.arranging import Rows
from headwise.data.batching import AnyBatch, Cursor, EndlessStream

AHEAD = 2  # batches of what is read from files, for these are large


def walk_epochs(
    plan: Callable[[int], list[Any]], load: Callable[[Any], AnyBatch], start: Cursor
) -> Iterator[tuple[Cursor, AnyBatch]]:
    """The batches that `load` makes of each part of `plan(epoch)`, such as some rows, from a cursor on."""
    epoch, position, _ = start
    for now in count(epoch):
        for done, rows in enumerate(plan(now)[position:], start=position + 1):
            yield (now, done, 0), load(rows)
        position = 0


class ReadWhenDue(Generic[AnyBatch]):
    """What is read from files when its batch comes, so that a corpus may be larger than memory; so many at a time."""

    def __len__(self) -> int:
        raise NotImplementedError

    def load(self, rows: Rows, seed: int = 0, epoch: int = -1) -> AnyBatch:
        """The batch of some rows: changed by what is drawn from (seed, epoch, row), or, with no epoch, as they are."""
        raise NotImplementedError

    def stream(
        self, size: int, seed: int, state: Mapping[str, int] | None, pin: bool = False
    ) -> EndlessStream[AnyBatch]:
        """Training batches of `size` rows without end, from `state` on, in an order drawn from (seed, epoch)."""

        def plan(epoch: int) -> list[tuple[int, Rows]]:
            order = np.random.default_rng([seed, epoch]).permutation(len(self))
            return [(epoch, order[at : at + size]) for at in range(0, len(order), size)]

        def load(part: tuple[int, Rows]) -> AnyBatch:
            return self.load(part[1], seed, part[0])

        return EndlessStream(lambda start: walk_epochs(plan, load, start), state, AHEAD, pin)

    def in_order(self, size: int) -> Iterator[Rows]:
        """Those of the batches that have everything once."""
        for at in range(0, len(self), size):
            yield np.arange(at, min(at + size, len(self)))

"""Batches epoch after epoch, planned by the epoch: for the streams of all tasks but a translator's."""

import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, Generic, TypeVar

import numpy as np

from headwise.data.batch import TrainingBatch
from headwise.data.batch_planning import Rows

Cursor = tuple[int, int, int]  # epoch, planned batches done with, batches given of a window begun


AnyBatch = TypeVar("AnyBatch", bound=TrainingBatch)


class EndlessStream(Generic[AnyBatch]):
    """Batches, epoch after epoch without end, prepared ahead in a thread of its own.

    `walk(cursor)` gives the batches from a cursor on, each with the cursor after it. `state()` says where the stream
    is; a stream made with that `state` continues with exactly the batches that this one would have given next.
    `wait_seconds` is the time the consumer has waited for batches so far. Batches are pinned with `pin`, for copies
    to a CUDA device that need not be waited for.
    """

    def __init__(
        self,
        walk: Callable[[Cursor], Iterator[tuple[Cursor, AnyBatch]]],
        state: Mapping[str, int] | None = None,
        prefetch: int = 8,
        pin: bool = False,
    ) -> None:
        self.epoch = state["epoch"] if state else 0
        self.position = state["position"] if state else 0  # planned batches done with in this epoch
        self.offset = state.get("offset", 0) if state else 0  # batches already given of a window begun
        self.wait_seconds = 0.0
        start = (self.epoch, self.position, self.offset)
        batches = walk(start)
        if pin:
            batches = ((cursor, batch.pinned()) for cursor, batch in batches)
        self._ready: queue.Queue = queue.Queue(prefetch)  # of (Cursor, batch) or an exception
        self._stop = threading.Event()
        self._thread = threading.Thread(target=_fill, args=(self._ready, self._stop, batches), daemon=True)
        self._thread.start()
        weakref.finalize(self, self._stop.set)

    def state(self) -> dict[str, int]:
        """Where the stream is: after the last batch given, whatever has been prepared beyond it."""
        return {"epoch": self.epoch, "position": self.position, "offset": self.offset}

    def __iter__(self) -> "EndlessStream[AnyBatch]":
        return self

    def __next__(self) -> AnyBatch:
        if self._stop.is_set():
            raise StopIteration
        started = time.perf_counter()
        item = self._ready.get()
        self.wait_seconds += time.perf_counter() - started
        if isinstance(item, BaseException):
            self.close()
            raise item
        (self.epoch, self.position, self.offset), batch = item
        return batch

    def close(self) -> None:
        """End the thread; the stream gives no more batches."""
        self._stop.set()
        self._thread.join()


def _fill(ready: queue.Queue, stop: threading.Event, items: Iterator[object]) -> None:
    """Put items into a queue until told to stop; an exception goes into the queue as the last item."""
    try:
        for item in items:
            if not _put(ready, stop, item):
                return
    except BaseException as error:
        _put(ready, stop, error)


def _put(ready: queue.Queue, stop: threading.Event, item: object) -> bool:
    """Wait for room in the queue; False when told to stop first."""
    while not stop.is_set():
        try:
            ready.put(item, timeout=0.1)
            return True
        except queue.Full:
            continue
    return False


PREFETCH = 2  # batches of what is read from files, for these are large


def batches_of_epochs(
    plan: Callable[[int], list[Any]], load: Callable[[Any], AnyBatch], start: Cursor
) -> Iterator[tuple[Cursor, AnyBatch]]:
    """The batches that `load` makes of each part of `plan(epoch)`, such as some rows, from a cursor on."""
    epoch, position, _ = start
    for now in count(epoch):
        for done, rows in enumerate(plan(now)[position:], start=position + 1):
            yield (now, done, 0), load(rows)
        position = 0


class LazyDataset(Generic[AnyBatch]):
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

        return EndlessStream(lambda start: batches_of_epochs(plan, load, start), state, PREFETCH, pin)

    def in_order(self, size: int) -> Iterator[Rows]:
        """Those of the batches that have everything once."""
        for at in range(0, len(self), size):
            yield np.arange(at, min(at + size, len(self)))

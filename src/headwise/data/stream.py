"""Endless, resumable streams of training batches, prepared ahead in a thread."""

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

Cursor = tuple[int, int, int]  # epoch, planned batches done, batches done of a window that is batched again
AnyBatch = TypeVar("AnyBatch", bound=TrainingBatch)

PREFETCH = 2  # batches of data read from files, which are large


class EndlessStream(Generic[AnyBatch]):
    """Batches of epoch after epoch, prepared ahead in a thread.

    Args:
        walk: yields the batches from a cursor on, each with the cursor after it.
        state: the `state()` of a stream to resume; the new stream gives exactly the batches that would have followed.
        prefetch: batches prepared ahead.
        pin: pin the batches, for asynchronous copies to a CUDA device.
    """

    def __init__(
        self,
        walk: Callable[[Cursor], Iterator[tuple[Cursor, AnyBatch]]],
        state: Mapping[str, int] | None = None,
        prefetch: int = 8,
        pin: bool = False,
    ) -> None:
        self.epoch = state["epoch"] if state else 0
        self.position = state["position"] if state else 0
        self.offset = state.get("offset", 0) if state else 0
        self.wait_seconds = 0.0
        batches = walk((self.epoch, self.position, self.offset))
        if pin:
            batches = ((cursor, batch.pinned()) for cursor, batch in batches)
        self._ready: queue.Queue = queue.Queue(prefetch)  # of (Cursor, batch) or an exception
        self._stop = threading.Event()
        self._thread = threading.Thread(target=_fill, args=(self._ready, self._stop, batches), daemon=True)
        self._thread.start()
        weakref.finalize(self, self._stop.set)

    def state(self) -> dict[str, int]:
        """The cursor after the last batch that was returned; prefetched batches do not count."""
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
        """Stop the thread; the stream gives no more batches."""
        self._stop.set()
        self._thread.join()


def _fill(ready: queue.Queue, stop: threading.Event, items: Iterator[object]) -> None:
    """Put items into a queue until `stop` is set; an exception goes into the queue as the last item."""
    try:
        for item in items:
            if not _put(ready, stop, item):
                return
    except BaseException as error:
        _put(ready, stop, error)


def _put(ready: queue.Queue, stop: threading.Event, item: object) -> bool:
    """Wait for room in the queue; False if `stop` is set first."""
    while not stop.is_set():
        try:
            ready.put(item, timeout=0.1)
            return True
        except queue.Full:
            continue
    return False


def batches_of_epochs(
    plan: Callable[[int], list[Any]], load: Callable[[Any], AnyBatch], start: Cursor
) -> Iterator[tuple[Cursor, AnyBatch]]:
    """Load the batches of `plan(epoch)`, epoch after epoch from a cursor on; for `EndlessStream`."""
    epoch, position, _ = start
    for now in count(epoch):
        for done, rows in enumerate(plan(now)[position:], start=position + 1):
            yield (now, done, 0), load(rows)
        position = 0


class LazyDataset(Generic[AnyBatch]):
    """A dataset whose examples are read from files when they are needed, so it may be larger than memory."""

    def __len__(self) -> int:
        raise NotImplementedError

    def load(self, rows: Rows, seed: int = 0, epoch: int = -1) -> AnyBatch:
        """The batch of some rows: augmented as a function of (seed, epoch, row), or unchanged without an epoch."""
        raise NotImplementedError

    def stream(
        self, size: int, seed: int, state: Mapping[str, int] | None, pin: bool = False
    ) -> EndlessStream[AnyBatch]:
        """Training batches of `size` rows from `state` on, shuffled by (seed, epoch)."""

        def plan(epoch: int) -> list[tuple[int, Rows]]:
            order = np.random.default_rng([seed, epoch]).permutation(len(self))
            return [(epoch, order[at : at + size]) for at in range(0, len(order), size)]

        def load(part: tuple[int, Rows]) -> AnyBatch:
            return self.load(part[1], seed, part[0])

        return EndlessStream(lambda start: batches_of_epochs(plan, load, start), state, PREFETCH, pin)

    def in_order(self, size: int) -> Iterator[Rows]:
        """The rows of each batch of one pass in order."""
        for at in range(0, len(self), size):
            yield np.arange(at, min(at + size, len(self)))

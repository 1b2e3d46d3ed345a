"""Endless, resumable streams of training batches, prepared ahead in a thread.

A stream walks through planned batches, each with a function that builds it. With several processes, all walk through
the same plan and each builds its own batches only.
"""

import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

from headwise.core.batches import TrainingBatch
from headwise.text.prepared.batch_planning import Rows

AnyBatch = TypeVar("AnyBatch", bound=TrainingBatch)
AnyPosition = TypeVar("AnyPosition")
AnyBuild = TypeVar("AnyBuild")

PREFETCH = 2  # batches of data read from files, which are large


class Cursor(NamedTuple):
    """A position in a stream."""

    epoch: int = 0
    position: int = 0  # planned batches done
    offset: int = 0  # batches done of a window that is batched again
    left: int = 0  # batches left of the first of two stages; see `directions.in_two_stages`

    def state(self) -> dict[str, int]:
        """The cursor as JSON."""
        return {name: value for name, value in self._asdict().items() if value or name != "left"}


@runtime_checkable
class StreamPosition(Protocol):
    """A position in a stream, such as `Cursor`."""

    def state(self) -> dict[str, Any]: ...


Planned = tuple[Cursor, Callable[[], AnyBatch]]  # the cursor after a batch, and the function that builds it


@dataclass(frozen=True)
class BatchShare:
    """The batches that this process builds: of the `total` of each update, every `size`-th from `rank` on."""

    rank: int = 0
    size: int = 1
    total: int = 1
    pin: bool = False  # pin them, for asynchronous copies to a CUDA device

    def of(self, planned: Iterable[tuple[AnyPosition, AnyBuild]]) -> Iterator[tuple[AnyPosition, AnyBuild]]:
        """The batches of this process; the cursor of its last batch of an update is that after the whole update."""
        planned = iter(planned)
        while update := list(islice(planned, self.total)):
            own = update[self.rank :: self.size]
            yield from own[:-1]
            yield update[-1][0], own[-1][1]


START, ALL_BATCHES = Cursor(), BatchShare()


class EndlessStream(Generic[AnyBatch]):
    """Batches of epoch after epoch, prepared ahead in a thread.

    Args:
        walk: yields the planned batches from a cursor on.
        state: the `state()` of a stream to resume; the new stream gives exactly the batches that would have followed.
            With a `share` of several processes, states count after whole updates.
        prefetch: batches prepared ahead.
        start: the cursor without a `state`.
    """

    def __init__(
        self,
        walk: Callable[[Any], Iterator[tuple[StreamPosition, Callable[[], AnyBatch]]]],
        state: Mapping[str, int] | None = None,
        share: BatchShare = ALL_BATCHES,
        prefetch: int = 8,
        start: StreamPosition = START,
    ) -> None:
        self.cursor: StreamPosition = Cursor(**state) if state else start
        self.wait_seconds = 0.0
        batches = ((cursor, build()) for cursor, build in share.of(walk(self.cursor)))
        if share.pin:
            batches = ((cursor, batch.pinned()) for cursor, batch in batches)
        self._ready: queue.Queue = queue.Queue(prefetch)  # of (Cursor, batch) or an exception
        self._stop = threading.Event()
        self._thread = threading.Thread(target=_fill, args=(self._ready, self._stop, batches), daemon=True)
        self._thread.start()
        weakref.finalize(self, self._stop.set)

    def state(self) -> dict[str, Any]:
        """The cursor after the last batch that was returned; prefetched batches do not count."""
        return self.cursor.state()

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
        self.cursor, batch = item
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
) -> Iterator[Planned[AnyBatch]]:
    """The batches of `plan(epoch)`, epoch after epoch from a cursor on; for `EndlessStream`."""
    position = start.position
    for now in count(start.epoch):
        for done, rows in enumerate(plan(now)[position:], start=position + 1):
            yield Cursor(now, done), partial(load, rows)
        position = 0


class LazyDataset(Generic[AnyBatch]):
    """A dataset whose examples are read from files when they are needed, so it may be larger than memory."""

    def __len__(self) -> int:
        raise NotImplementedError

    def load(self, rows: Rows, seed: int = 0, epoch: int = -1) -> AnyBatch:
        """The batch of some rows: augmented as a function of (seed, epoch, row), or unchanged without an epoch."""
        raise NotImplementedError

    def stream(
        self, size: int, seed: int, state: Mapping[str, int] | None, share: BatchShare = ALL_BATCHES
    ) -> EndlessStream[AnyBatch]:
        """Training batches of `size` rows from `state` on, shuffled by (seed, epoch)."""

        def plan(epoch: int) -> list[tuple[int, Rows]]:
            order = np.random.default_rng([seed, epoch]).permutation(len(self))
            return [(epoch, order[at : at + size]) for at in range(0, len(order), size)]

        def load(part: tuple[int, Rows]) -> AnyBatch:
            return self.load(part[1], seed, part[0])

        return EndlessStream(lambda start: batches_of_epochs(plan, load, start), state, share, PREFETCH)

    def in_order(self, size: int) -> Iterator[Rows]:
        """The rows of each batch of one pass in order."""
        for at in range(0, len(self), size):
            yield np.arange(at, min(at + size, len(self)))

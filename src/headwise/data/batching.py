"""Fourth stage of the pipeline: which pairs form a batch, and the endless stream of batches that training
reads.

Section 5.1 of the paper batches pairs of similar length, because padding costs. What it does not say is what that
costs in turn: the pairs of a batch are alike, so its gradient is noisier than that of as many pairs drawn at random.
Where padding costs nothing (`training/packed.py`) batches are therefore sampled at random; elsewhere they are bucketed
by length, but only within a window of some batches. The plan of an epoch is a pure function of (seed, epoch), so a
cursor (where a stream stands in the data) is a few numbers. Not here: tensors (`batch.py`).
"""

import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Generic, TypeVar

import numpy as np

from headwise.config.data import PairData
from headwise.data.arranging import Lengths, Noise, Pairs, Rows, arrange
from headwise.data.batch import Batch, Tokens, TrainingBatch, collate
from headwise.data.bpe_dropout import window_batches
from headwise.data.pair_tokenizer import PairTokenizer
from headwise.data.tokenizer import Tokenizer

Cursor = tuple[int, int, int]  # epoch, planned batches done with, batches given of a window begun

AnyBatch = TypeVar("AnyBatch", bound=TrainingBatch)

PART = 1 << 20  # pairs planned at once, some fifty bytes each: beyond it memory does not grow with the corpus
WINDOW = 32  # planned batches whose pairs are arranged anew under BPE-dropout; more pad less and wait longer


def plan_epoch(
    src_lengths: Lengths,
    tgt_lengths: Lengths,
    tokens_per_batch: int,
    seed: int,
    epoch: int,
    bucketed: bool = True,
    part: int = PART,
) -> Iterator[list[Rows]]:
    """The batches of one epoch as `plan_batches` has them, planned for about `part` pairs at a time.

    Of a larger corpus every k-th pair is a part, so that however the files are sorted all parts are alike. Epoch 0
    begins with the largest batch, or with that of the part that has the longest pair.
    """
    n_parts = -(-len(src_lengths) // part)
    if n_parts <= 1:
        yield plan_batches(src_lengths, tgt_lengths, tokens_per_batch, seed, epoch, bucketed, largest_first=epoch == 0)
        return
    order = np.random.default_rng([seed, epoch]).permutation(n_parts).tolist()
    if epoch == 0:
        longest = [max(lengths[i::n_parts].max() for lengths in (src_lengths, tgt_lengths)) for i in range(n_parts)]
        order.sort(key=lambda i: i != int(np.argmax(longest)))  # the others stay in their order
    for i in order:
        generator = np.random.default_rng([seed, epoch, i])
        first = epoch == 0 and i == order[0]
        lengths = src_lengths[i::n_parts], tgt_lengths[i::n_parts]
        yield [rows * n_parts + i for rows in arrange(*lengths, tokens_per_batch, generator, bucketed, first)]


def plan_batches(
    src_lengths: Lengths,
    tgt_lengths: Lengths,
    tokens_per_batch: int,
    seed: int,
    epoch: int,
    bucketed: bool = True,
    largest_first: bool = False,
) -> list[Rows]:
    """The batches of one epoch, as rows of the corpus: every pair once, in an order drawn from (seed, epoch).

    Args:
        src_lengths: pieces of every source, end marks included.
        tgt_lengths: the same for the targets.
        tokens_per_batch: what stays within this is rows x longest side of a batch with `bucketed`, and otherwise the
            target pieces of a batch; a pair that is longer on its own gets a batch of its own.
        bucketed: pairs of similar length together; otherwise they are drawn at random.
        largest_first: the batch that needs the most memory comes first, so that trouble shows at once.
    """
    generator = np.random.default_rng([seed, epoch])
    return arrange(src_lengths, tgt_lengths, tokens_per_batch, generator, bucketed, largest_first)


def unchanged_tokens(source: Tokens, epoch: int, row: int) -> Tokens:
    """No noise."""
    return source


def validation_batches(
    corpus: Pairs, tokenizer: PairTokenizer, tokens_per_batch: int, noise: Noise = unchanged_tokens
) -> Iterator[Batch]:
    """Every pair of a corpus once, always in the same batches with the same noise, never with BPE-dropout."""
    for rows in plan_batches(corpus.src_lengths, corpus.tgt_lengths, tokens_per_batch, seed=0, epoch=0):
        yield load_batch(corpus, tokenizer, rows, noise)


def load_batch(
    corpus: Pairs, tokenizer: PairTokenizer, rows: Rows, noise: Noise = unchanged_tokens, epoch: int = 0
) -> Batch:
    """The batch of some rows."""
    pairs = [(noise(corpus.src(row), epoch, row), corpus.tgt(row)) for row in rows.tolist()]
    marks = tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id
    return collate(pairs, *marks, index=rows, src_end_id=tokenizer.source.eos_id)


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
        self._thread = threading.Thread(target=fill, args=(self._ready, self._stop, batches), daemon=True)
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


class BatchStream(EndlessStream[Batch]):
    """Batches of training pairs.

    With `config.bpe_dropout` (arXiv:1910.13267) every pair, or its source alone, is segmented anew in every epoch,
    as a pure function of (seed, epoch, row). Lengths change with it, so the pairs of `WINDOW` planned batches are
    arranged anew by the lengths they have now; a segmentation longer than `config.max_length` is replaced by
    the one without dropout. `noise` changes what is read of the sources; lengths are planned without it.
    """

    def __init__(
        self,
        corpus: Pairs,
        tokenizer: PairTokenizer,
        config: PairData,
        tokens_per_batch: int,
        seed: int,
        bucketed: bool = True,
        state: Mapping[str, int] | None = None,
        prefetch: int = 8,
        pin: bool = False,
        noise: Noise = unchanged_tokens,
    ) -> None:
        def batches(start: Cursor) -> Iterator[tuple[Cursor, Batch]]:
            return walk_batches(corpus, tokenizer, config, tokens_per_batch, seed, bucketed, start, noise)

        super().__init__(batches, state, prefetch, pin)


def walk_batches(
    corpus: Pairs,
    tokenizer: PairTokenizer,
    config: PairData,
    tokens_per_batch: int,
    seed: int,
    bucketed: bool,
    start: Cursor,
    noise: Noise,
) -> Iterator[tuple[Cursor, Batch]]:
    """Batches from a cursor on, each with the cursor after it; only epoch 0 starts largest first."""
    epoch, position, offset = start
    for now in count(epoch):
        end, pairs = 0, corpus.in_epoch(now)
        for plan in plan_epoch(pairs.src_lengths, pairs.tgt_lengths, tokens_per_batch, seed, now, bucketed):
            first, end = end, end + len(plan)
            if end <= position:
                continue
            if config.bpe_dropout == 0:
                for done in range(max(first, position), end):
                    yield (now, done + 1, 0), load_batch(pairs, tokenizer, plan[done - first], noise, now)
                continue
            assert isinstance(tokenizer, Tokenizer), "other vocabularies are never cut anew"
            for begin in range(max(first, position), end, WINDOW):
                behind = min(begin + WINDOW, end)
                rows = np.concatenate(plan[begin - first : behind - first])
                window = (now, begin)
                settings = config, tokens_per_batch, seed, bucketed
                parts = list(window_batches(pairs, tokenizer, *settings, window, rows, noise))
                for given, batch in enumerate(parts[offset:], start=offset + 1):
                    yield (now, begin, given) if given < len(parts) else (now, behind, 0), batch
                offset = 0
        position = 0


def fill(ready: queue.Queue, stop: threading.Event, items: Iterator[object]) -> None:
    """Put items into a queue until told to stop; an exception goes into the queue as the last item."""
    try:
        for item in items:
            if not put(ready, stop, item):
                return
    except BaseException as error:
        put(ready, stop, error)


def put(ready: queue.Queue, stop: threading.Event, item: object) -> bool:
    """Wait for room in the queue; False when told to stop first."""
    while not stop.is_set():
        try:
            ready.put(item, timeout=0.1)
            return True
        except queue.Full:
            continue
    return False

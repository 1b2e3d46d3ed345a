"""Training batches of a stream of shards, in bounded memory and without copies on disk.

An update has a fixed number of batches, and each of them comes from a lane of its own: an endless reader of every n-th
shard of the shuffled epochs. A process reads and tokenizes its own lanes only. With fewer shards than lanes, a shard is
read by several, each of which takes every k-th record. A lane reads a window of pairs, drops unsuitable ones, and plans
batches of them as of a small corpus, while the batches of the window before are used.

The position of a lane is that of its window and the batches done of it, so resuming reads one window again.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tokenizers
from numpy.typing import NDArray

from headwise.config.data import TranslationData
from headwise.core.batches import Batch
from headwise.errors import UserError
from headwise.pytorch.data.batching import PairBatches
from headwise.pytorch.data.stream import BatchShare, Cursor, EndlessStream
from headwise.text.files.columns import ENDS, Column
from headwise.text.files.sources import Pair
from headwise.text.prepared.batch_planning import Pairs
from headwise.text.prepared.cache import cache
from headwise.text.prepared.file_hashes import short_hash
from headwise.text.prepared.prepared import FORMAT, PreparedCorpus, cached_tokenizer
from headwise.text.prepared.stream_shards import Shards
from headwise.text.tokens.pair_tokenizer import PairTokenizer
from headwise.text.tokens.tokenize_pairs import COLUMNS, LENGTH, Result, tokenize_pairs
from headwise.text.tokens.tokenizer import Tokenizer

CHUNK = 1024  # pairs tokenized at once
BARREN_EPOCHS = 20  # without a usable pair, before a lane gives up; with few shards, an epoch may miss it
RECORDS = 1 << 40  # more than a shard has

NumberedPair = tuple[int, int, Pair]  # unit, number of the record in its shard, pair


class LaneCursor(NamedTuple):
    """A position in a lane."""

    unit: int  # number of the shard, or part of a shard, in the endless order of all epochs
    record: int = 0  # records of the shard read before the window
    position: int = 0  # as in `Cursor`, within the window
    offset: int = 0


class StreamCursor(NamedTuple):
    """A position in several lanes."""

    lanes: tuple[LaneCursor, ...]
    units: int  # of an epoch

    def state(self) -> dict[str, Any]:
        """The cursor as JSON; `lanes` are those of this process."""
        return {
            "epoch": self.lanes[0].unit // self.units,
            "units": self.units,
            "lanes": [[*lane] for lane in self.lanes],
        }


def lanes_from(state: Mapping[str, Any] | None, n: int, units: int) -> list[LaneCursor]:
    """The positions of all `n` lanes.

    With another number of lanes, those of `state` are closed, and new ones begin behind them; with other `units`, they
    begin with the next epoch.
    """
    first = 0
    if state:
        lanes = [LaneCursor(*lane) for lane in state["lanes"]]
        if (len(lanes), state["units"]) == (n, units):
            return lanes
        last = max(lane.unit for lane in lanes)
        first = last + 1 if state["units"] == units else (last // state["units"] + 1) * units
    return [LaneCursor(first + i) for i in range(n)]


Filled = tuple[PreparedCorpus, LaneCursor, Iterator[NumberedPair]]  # a window, its end, and the reader of the next


@dataclass(frozen=True)
class StreamedPairs:
    """The pairs of shards, which are read during training."""

    shards: Shards
    tokenizer: PairTokenizer
    config: TranslationData

    def stream(
        self,
        batches_of: Callable[[Pairs], PairBatches],
        lanes: int,
        seed: int,
        state: Mapping[str, Any] | None,
        share: BatchShare,
    ) -> EndlessStream[Batch]:
        """The batches of this process.

        Args:
            batches_of: the batches of a window.
            lanes: the batches of an update.
            state: the position of all lanes.
        """
        slices = -(-lanes // len(self.shards.files))
        units = slices * len(self.shards.files)
        own = lanes_from(state, lanes, units)[share.rank :: share.size]
        made = [Lane(self, batches_of, lanes, seed, slices) for _ in own]

        def walk(start: StreamCursor) -> Iterator[tuple[StreamCursor, Callable[[], Batch]]]:
            walks, cursors = [lane.walk(at) for lane, at in zip(made, start.lanes, strict=True)], [*start.lanes]
            while True:
                for i, one in enumerate(walks):
                    cursors[i], build = next(one)
                    yield StreamCursor((*cursors,), units), build

        return EndlessStream(walk, share=BatchShare(pin=share.pin), start=StreamCursor((*own,), units))


@dataclass(frozen=True)
class Lane:
    """Every n-th shard of the endless order, where n is the number of `lanes`."""

    source: StreamedPairs
    batches_of: Callable[[Pairs], PairBatches]
    lanes: int
    seed: int
    slices: int

    @property
    def window(self) -> int:
        """Pairs that are read before batches are planned."""
        return max(1, self.source.config.shuffle_buffer // self.lanes)

    @property
    def units(self) -> int:
        """Shards, or parts of shards, of an epoch."""
        return self.slices * len(self.source.shards.files)

    def walk(self, start: LaneCursor) -> Iterator[tuple[LaneCursor, Callable[[], Batch]]]:
        """The planned batches from a cursor on; a window is read while the one before it is used."""
        at, cursor, useful = LaneCursor(start.unit, start.record), Cursor(0, *start[2:]), start.unit
        filling = self._fill(at, self._records(at))
        while True:
            pairs, end, reader = finished(filling)
            filling = self._fill(end, reader)
            if len(pairs):
                useful = at.unit
                batches = self.batches_of(pairs)
                n_chunks = self._chunks_per_batch(pairs, batches.tokens_per_batch)
                for done, build in batches.one_epoch(cursor._replace(epoch=at.unit * RECORDS + at.record)):
                    for _ in range(n_chunks):
                        next(filling)
                    yield at._replace(position=done.position, offset=done.offset), build
            elif end.unit - useful > BARREN_EPOCHS * self.units:
                reasons = "".join(f"; dropped {count:,}: {reason}" for reason, count in pairs.dropped.items())
                raise UserError(f"--train {self.source.shards}: no pair to train on{reasons}; check the files")
            at, cursor = end, Cursor()

    def _chunks_per_batch(self, pairs: PreparedCorpus, tokens_per_batch: int) -> int:
        """Chunks of the next window to read for each batch of this one."""
        batches = max(1, int(pairs.tgt_lengths.sum(dtype=np.int64)) // tokens_per_batch)
        return -(-self.window // (CHUNK * batches))

    def _fill(self, at: LaneCursor, reader: Iterator[NumberedPair]) -> Iterator[Filled | None]:
        """Read a window, which ends with the epoch: yields None for each chunk, and then the window, endlessly."""
        results, left = list[Result](), self.window
        while left:
            chunk = list(islice(reader, min(CHUNK, left)))
            if not chunk:
                at = LaneCursor(self._next_epoch(at.unit))
                reader = self._records(at)
                break
            source = self.source
            results.append(tokenize_pairs([pair for *_, pair in chunk], source.tokenizer, source.config))
            at, left = LaneCursor(*chunk[-1][:2]), left - len(chunk)
            yield None
        yield from repeat((in_memory(results), at, reader))

    def _next_epoch(self, unit: int) -> int:
        """The first unit of this lane in the epoch after that of `unit`."""
        end = (unit // self.units + 1) * self.units
        return unit + -(-(end - unit) // self.lanes) * self.lanes

    def _records(self, at: LaneCursor) -> Iterator[NumberedPair]:
        """The pairs of this lane from `at` to the end of the epoch, with unit and record."""
        epoch, files = at.unit // self.units, self.source.shards.files
        order = self.source.shards.order(self.seed, epoch, self.slices)
        for unit in range(at.unit, (epoch + 1) * self.units, self.lanes):
            file, part = divmod(order[unit % self.units], self.slices)
            done = at.record if unit == at.unit else 0
            for number, pair in files[file].read():
                if number > done and number % self.slices == part:
                    yield unit, number, pair


def finished(filling: Iterator[Filled | None]) -> Filled:
    """The window that `Lane._fill` reads."""
    return next(filled for filled in filling if filled)


def in_memory(results: Sequence[Result]) -> PreparedCorpus:
    """A prepared corpus of tokenized chunks, in memory."""
    columns, lengths = dict[str, Column](), list[NDArray[np.int32]]()
    for i, (name, dtype) in enumerate(COLUMNS.items()):
        parts = [parts[i] for parts, _ in results if parts]
        lengths.append(np.concatenate([np.empty(0, LENGTH), *(part[1] for part in parts)]))
        values = np.frombuffer(b"".join(part[0] for part in parts), dtype)
        columns[name] = Column(values, np.concatenate([np.zeros(1, ENDS), np.cumsum(lengths[i], dtype=ENDS)]))
    dropped, kept = sum((reasons for _, reasons in results), Counter[str]()), len(lengths[0])
    return PreparedCorpus(columns, lengths[0] + 1, lengths[1] + 1, [kept], kept + dropped.total(), dict(dropped), "")


def train_on_first_pairs(
    shards: Shards,
    config: TranslationData,
    special: Sequence[str],
    seed: int,
    cache_dir: Path | None = None,
    report: Callable[[str], None] = lambda message: None,
) -> Tokenizer:
    """Train a tokenizer on the first `config.tokenizer_sample` pairs of the first epoch, or load it from the cache."""
    most = config.tokenizer_sample
    settings = [config.subword, config.vocab_size, config.normalization, config.lowercase, *special]
    if most:
        report(f"the tokenizer is trained on the first {most:,} pairs at most (data.tokenizer_sample)")
    with cache(cache_dir) as folder:
        name = short_hash(FORMAT, tokenizers.__version__, settings, "stream", shards.version, seed, most)
        texts = (side for pair in shards.first_pairs(seed, most) for side in pair)
        return cached_tokenizer(folder / f"tokenizer-{name}", lambda: Tokenizer.train(texts, config, special))

"""Batches of a stream of shards: lanes, windows, exact positions, bounded memory."""

import gzip
import tracemalloc
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from headwise.config.data import TranslationData
from headwise.core.batches import Batch
from headwise.errors import UserError
from headwise.pytorch.data.batching import PairBatches
from headwise.pytorch.data.stream import ALL_BATCHES, BatchShare
from headwise.pytorch.data.streamed_pairs import Lane, LaneCursor, StreamedPairs, lanes_from, train_on_first_pairs
from headwise.pytorch.training.parallel import interleave
from headwise.text.files.sources import Pair
from headwise.text.prepared.stream_shards import find_shards

SIZES = [70, 0, 33, 50, 1]
CONFIG = TranslationData(vocab_size=300, shuffle_buffer=48, max_length=64)
TOKENS, SEED = 120, 3


@pytest.fixture(scope="module")
def streamed(tmp_path_factory: pytest.TempPathFactory) -> StreamedPairs:
    return made(tmp_path_factory.mktemp("shards"), SIZES)


def made(folder: Path, sizes: list[int]) -> StreamedPairs:
    for i, size in enumerate(sizes):
        lines = [f"{'go ' * (1 + n % 5)}{i} {n}\t{'geh ' * (1 + n % 7)}{i} {n}\n" for n in range(size)]
        (folder / f"{i}.tsv.gz").write_bytes(gzip.compress("".join(lines).encode()))
    shards = find_shards([f"stream:{folder}/*.tsv.gz"])
    return StreamedPairs(shards, train_on_first_pairs(shards, CONFIG, (), SEED, folder), CONFIG)


def batches_of(streamed: StreamedPairs) -> Any:
    return lambda pairs: PairBatches(pairs, streamed.tokenizer, streamed.config, TOKENS, SEED)


def opened(
    streamed: StreamedPairs, lanes: int, state: Mapping[str, Any] | None = None, share: BatchShare = ALL_BATCHES
) -> Any:
    return closing(streamed.stream(batches_of(streamed), lanes, SEED, state, share))


def texts(streamed: StreamedPairs, batch: Batch) -> list[Pair]:
    sides = zip(batch.src.tolist(), batch.tgt_out.tolist(), strict=True)
    return [tuple(map(streamed.tokenizer.decode, pair)) for pair in sides]  # type: ignore[misc]


def first_epochs(streamed: StreamedPairs, lanes: int, epochs: int) -> list[Counter[Pair]]:
    """The pairs that all lanes give in each epoch."""
    slices = -(-lanes // len(streamed.shards.files))
    found = [Counter[Pair]() for _ in range(epochs)]
    for i in range(lanes):
        lane = Lane(streamed, batches_of(streamed), lanes, SEED, slices)
        for cursor, build in lane.walk(LaneCursor(i)):
            if cursor.unit // lane.units >= epochs:
                break
            found[cursor.unit // lane.units].update(texts(streamed, build()))
    return found


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("lanes", [1, 2, 5, 7, 12])  # more lanes than shards take parts of them
def test_an_epoch_has_every_pair_once(streamed: StreamedPairs, lanes: int, dropout: float) -> None:
    asked = replace(streamed, config=replace(CONFIG, bpe_dropout=dropout))
    wanted = Counter(pair for shard in streamed.shards.files for _, pair in shard.read())
    assert first_epochs(asked, lanes, 2) == [wanted, wanted]


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_shard_is_shuffled_and_segmented_anew_in_every_epoch(streamed: StreamedPairs, dropout: float) -> None:
    one = replace(streamed.shards, files=streamed.shards.files[:1])
    asked = replace(streamed, shards=one, config=replace(CONFIG, shuffle_buffer=1000, bpe_dropout=dropout))
    lane = Lane(asked, batches_of(asked), 1, SEED, 1)
    epochs: list[list[Pair]] = [[], []]
    lengths = [0, 0]
    for cursor, build in lane.walk(LaneCursor(0)):
        if cursor.unit >= 2:
            break
        epochs[cursor.unit] += texts(asked, batch := build())
        lengths[cursor.unit] += batch.n_source_tokens
    in_order = [pair for _, pair in one.files[0].read()]
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(in_order)
    assert epochs[0] != epochs[1] and epochs[0] != in_order
    assert (lengths[0] == lengths[1]) == (dropout == 0)


@pytest.mark.few(3)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("lanes", [1, 2, 7])
def test_resuming_is_exact_everywhere(streamed: StreamedPairs, lanes: int, dropout: float) -> None:
    asked = replace(streamed, config=replace(CONFIG, bpe_dropout=dropout))
    given, states = list[Batch](), list[dict[str, Any]]()
    with opened(asked, lanes) as whole:
        for batch in islice(whole, 30 * lanes):
            given.append(batch)
            states.append(whole.state())
    assert len({state["epoch"] for state in states}) > (lanes == 1)
    for updates in range(0, 29, 3):
        with opened(asked, lanes, states[(updates + 1) * lanes - 1]) as rest:
            for batch, expected in zip(rest, given[(updates + 1) * lanes :][: 2 * lanes], strict=False):
                assert torch.equal(batch.src, expected.src) and torch.equal(batch.tgt_out, expected.tgt_out)


@pytest.mark.parametrize(("lanes", "size"), [(2, 2), (5, 2), (7, 3)])
def test_processes_share_the_batches_of_one(streamed: StreamedPairs, lanes: int, size: int) -> None:
    """Each reads its own lanes; the positions of all together resume with any number of processes."""
    shares = [BatchShare(rank, size, lanes) for rank in range(size)]
    own = [len(range(rank, lanes, size)) for rank in range(size)]
    with opened(streamed, lanes) as one:
        whole = [*islice(one, 6 * lanes)]
    state: dict[str, Any] = {}
    for first in (0, 3):
        ends = []
        for share, n in zip(shares, own, strict=True):
            with opened(streamed, lanes, state, share) as stream:
                for update in range(first, first + 3):
                    expected = whole[update * lanes : (update + 1) * lanes][share.rank :: size]
                    for batch, same in zip(islice(stream, n), expected, strict=True):
                        assert torch.equal(batch.src, same.src)
                ends.append(stream.state())
        state = {**ends[0], "lanes": interleave([end["lanes"] for end in ends])}
    with opened(streamed, lanes) as one:
        assert len([*islice(one, 6 * lanes)]) == 6 * lanes and one.state() == state


def test_other_lanes_begin_behind_those_before() -> None:
    state = {"epoch": 0, "units": 9, "lanes": [[3, 40, 2, 0], [4, 0, 0, 0]]}
    assert lanes_from(state, 2, 9) == [LaneCursor(3, 40, 2), LaneCursor(4)]
    assert lanes_from(state, 3, 9) == [LaneCursor(5), LaneCursor(6), LaneCursor(7)]
    assert lanes_from(state, 2, 10) == [LaneCursor(10), LaneCursor(11)]
    assert lanes_from(None, 2, 9) == [LaneCursor(0), LaneCursor(1)]


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_limits_hold(streamed: StreamedPairs, dropout: float) -> None:
    asked = replace(streamed, config=replace(CONFIG, bpe_dropout=dropout, max_length=8))
    kept = first_epochs(asked, 2, 1)[0]
    assert 0 < kept.total() < sum(SIZES)
    with opened(asked, 2) as stream:
        for batch in islice(stream, 60):
            assert max(batch.src.size(1), batch.tgt_out.size(1)) <= 8
            assert batch.src.size(0) * max(batch.src.size(1), batch.tgt_out.size(1)) <= TOKENS


def test_nothing_to_train_on(tmp_path: Path, streamed: StreamedPairs) -> None:
    asked = replace(streamed, config=replace(CONFIG, max_length=2))
    message = "no pair to train on; dropped [0-9]+: longer than data.max_length; check the files"
    with opened(asked, 2) as stream, pytest.raises(UserError, match=message):
        next(stream)
    for i in range(2):
        (tmp_path / f"{i}.tsv").write_text("", encoding="utf-8")
    empty = replace(streamed, shards=find_shards([f"stream:{tmp_path}/*.tsv"]))
    with opened(empty, 1) as stream, pytest.raises(UserError, match="and 1 other shards: no pair to train on"):
        next(stream)


def test_the_batches_before_a_damaged_shard_are_given(tmp_path: Path) -> None:
    asked = made(tmp_path, [60, 60])
    last = asked.shards.files[asked.shards.order(SEED, 0)[1]]
    content = Path(last.path).read_bytes()
    Path(last.path).write_bytes(content[:-8] + b"\0" + content[-7:])
    asked = replace(asked, shards=find_shards([f"stream:{tmp_path}/*.tsv.gz"]))
    given = 0
    with opened(asked, 1) as stream, pytest.raises(UserError, match=r"the \.gz is damaged .*\(after [0-9]+ records"):
        for batch in stream:
            given += len(batch.src)
    assert given > 0


@pytest.mark.thorough
def test_memory_does_not_grow_with_the_stream(tmp_path: Path) -> None:
    """Of the same pairs in one shard and in four."""
    asked = replace(made(tmp_path, [2000] * 4), config=replace(CONFIG, shuffle_buffer=1000))
    peaks = list[int]()
    for n in (1, 4):
        some = replace(asked, shards=replace(asked.shards, files=asked.shards.files[:n]))
        walk, make = Lane(some, batches_of(some), 1, SEED, 1).walk(LaneCursor(0)), 0
        tracemalloc.start()
        for cursor, build in walk:
            if cursor.unit >= n:
                break
            make += len(build().src)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert make == 2000 * n
    assert peaks[1] < 1.2 * peaks[0]

"""Batches: every pair once per epoch, within the budget, reproducible, exactly resumable."""

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headwise.config.data import TranslationData
from headwise.core.batches import Batch, collate
from headwise.pytorch.data import batching
from headwise.pytorch.data.batching import PairBatches, validation_batches
from headwise.pytorch.data.stream import BatchShare
from headwise.text.files.corpus import Corpus
from headwise.text.prepared.batch_planning import RANDOM_BATCH_LIMIT, plan_batches, plan_epoch
from headwise.text.prepared.prepared import PreparedCorpus, prepare, train_tokenizer
from headwise.text.tokens.tokenizer import Tokenizer

CONFIG = TranslationData(vocab_size=300)
LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=60)


def columns(lengths: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    src, tgt = np.array(lengths, np.int32).T
    return src, tgt


@given(LENGTHS, st.integers(1, 200), st.integers(0, 9), st.integers(0, 9), st.booleans(), st.booleans())
def test_each_pair_once_and_the_budget_kept(lengths, budget, seed, epoch, bucketed, largest_first):
    src, tgt = columns(lengths)
    plan = plan_batches(src, tgt, budget, seed, epoch, bucketed, largest_first)
    assert sorted(np.concatenate(plan).tolist()) == list(range(len(lengths)))
    for rows in plan:
        assert len(rows) == 1 or size(src[rows], tgt[rows], bucketed) <= budget
    again = plan_batches(src, tgt, budget, seed, epoch, bucketed, largest_first)
    assert [rows.tolist() for rows in again] == [rows.tolist() for rows in plan]
    if largest_first:
        sides = [(src[rows], tgt[rows]) for rows in plan]
        cells = [len(s) * (s.max() + t.max()) if bucketed else s.sum() + t.sum() for s, t in sides]
        assert cells[0] == max(cells)


def size(src: np.ndarray, tgt: np.ndarray, bucketed: bool) -> int:
    """What the budget limits."""
    return len(src) * max(src.max(), tgt.max()) if bucketed else tgt.sum()


def test_random_batches_limit_long_pairs():
    lengths = np.tile([1] * 300 + [400], 20)
    plan = plan_batches(lengths, lengths, 500, seed=1, epoch=0, bucketed=False)
    assert max(len(rows) * lengths[rows].max() for rows in plan) <= RANDOM_BATCH_LIMIT * 500
    assert max(len(rows) for rows in plan) > 20  # which is a limit for company of long pairs


@pytest.mark.parametrize(("bucketed", "fewest", "most"), [(True, 2, 12), (False, 30, 60)])
def test_a_batch_has_many_lengths(bucketed, fewest, most):
    """If the whole corpus were sorted, a batch would have one or two lengths, which slows training."""
    src, tgt = random_lengths(20_000)
    plan = plan_batches(src, tgt, 2000, seed=1, epoch=0, bucketed=bucketed)
    distinct = [len(np.unique(src[rows])) for rows in plan if len(rows) > 30]
    assert fewest < np.mean(distinct) < most


def test_lengths_are_batched_differently_within_an_epoch():
    """Every window mixes other pairs, so no batch has all pairs of one length."""
    src, tgt = random_lengths(20_000)
    plan = plan_batches(src, tgt, 2000, seed=1, epoch=0)
    medians = [np.median(src[rows]) for rows in plan]
    assert len({tuple(sorted(set(src[rows].tolist()))) for rows in plan}) > len(plan) / 4
    assert np.ptp(medians) > 40


@given(LENGTHS, st.integers(1, 200), st.integers(0, 9), st.integers(0, 3), st.booleans(), st.integers(1, 30))
def test_parts_of_an_epoch_are_spread_over_the_corpus(lengths, budget, seed, epoch, bucketed, part):
    src, tgt = columns(lengths)
    plans = list(plan_epoch(src, tgt, budget, seed, epoch, bucketed, part))
    rows = [np.concatenate(plan) for plan in plans]
    assert sorted(np.concatenate(rows).tolist()) == list(range(len(lengths)))
    assert all(len(some) <= part and len(set((some % len(plans)).tolist())) == 1 for some in rows)
    for batch in (batch for plan in plans for batch in plan):
        assert len(batch) == 1 or size(src[batch], tgt[batch], bucketed) <= budget
    again = [batch.tolist() for plan in plan_epoch(src, tgt, budget, seed, epoch, bucketed, part) for batch in plan]
    assert again == [batch.tolist() for plan in plans for batch in plan]
    if epoch == 0:
        assert max(src[rows[0]].max(), tgt[rows[0]].max()) == max(src.max(), tgt.max())


def test_one_part_is_the_plan_of_the_whole():
    lengths = random_lengths(500)
    (plan,) = plan_epoch(*lengths, 1000, seed=1, epoch=2)
    assert [rows.tolist() for rows in plan] == [rows.tolist() for rows in plan_batches(*lengths, 1000, 1, 2)]


def random_lengths(n: int) -> tuple[np.ndarray, np.ndarray]:
    src = np.random.default_rng(0).integers(2, 60, n, dtype=np.int32)
    return src, np.maximum(1, src + np.random.default_rng(1).integers(-3, 4, n, dtype=np.int32))


def test_order_and_batches_change_with_seed_and_epoch():
    lengths = random_lengths(2000)
    plans = [plan_batches(*lengths, 1000, seed, epoch) for seed, epoch in ((1, 0), (1, 1), (2, 0))]
    order = [[int(rows.max()) for rows in plan] for plan in plans]
    company = [{frozenset(rows.tolist()) for rows in plan} for plan in plans]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert order[i] != order[j]
        assert len(company[i] & company[j]) < len(company[i]) / 2


def test_batches_are_full_and_hardly_padded():
    src, tgt = random_lengths(5000)
    plan = plan_batches(src, tgt, 2000, seed=1, epoch=0)
    cells = sum(len(rows) * (src[rows].max() + tgt[rows].max()) for rows in plan)
    assert 1 - (src.sum() + tgt.sum()) / cells < 0.1
    assert len(plan) < 1.1 * np.maximum(src, tgt).sum() / 2000


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[PreparedCorpus, Tokenizer]:
    folder: Path = tmp_path_factory.mktemp("corpus")
    lines = ["\t".join(" ".join([word] * (1 + i % 7)) for word in ("running", "laufend")) for i in range(60)]
    (folder / "a.tsv").write_text("\n".join(lines), encoding="utf-8")
    corpora = [Corpus((str(folder / "a.tsv"),))]
    tokenizer = train_tokenizer(corpora, CONFIG, cache_dir=folder)
    return prepare(corpora, tokenizer, CONFIG, cache_dir=folder, progress=False), tokenizer


def same(left: Batch, right: Batch) -> bool:
    names = ("src", "tgt_in", "tgt_out", "src_mask", "index")
    return all(torch.equal(getattr(left, name), getattr(right, name)) for name in names)


@pytest.fixture(params=[None, 50], ids=["at-once", "in-parts"])
def parts(request, monkeypatch):
    """An epoch is planned as a whole, or for 50 pairs at a time."""
    if request.param:
        monkeypatch.setattr(batching, "plan_epoch", partial(plan_epoch, part=request.param))
    return request.param


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize(("dropout", "sides"), [(0.0, "both"), (0.3, "both"), (0.3, "source")])
def test_a_stream_resumes_exactly_from_its_state(corpus, dropout, sides, monkeypatch):
    monkeypatch.setattr(batching, "WINDOW", 4)
    config = replace(CONFIG, bpe_dropout=dropout, bpe_dropout_sides=sides)
    with closing(PairBatches(*corpus, config, 60, seed=3).stream()) as whole:
        batches, states = [], [whole.state()]
        while whole.cursor.epoch < 3:
            batches.append(next(whole))
            states.append(whole.state())
    assert states[-1] == {"epoch": 3, "position": 0 if dropout else 1, "offset": 1 if dropout else 0}
    assert {state["offset"] > 0 for state in states} == ({True, False} if dropout else {False})
    for start in range(0, len(batches), 7):
        with closing(PairBatches(*corpus, config, 60, seed=3).stream(state=states[start], prefetch=2)) as rest:
            following = list(islice(rest, 4))
            assert all(map(same, following, batches[start : start + 4]))
            assert rest.state() == states[min(start + 4, len(batches))] or start + 4 > len(batches)


def test_a_batch_is_pinned_in_the_thread_if_asked(corpus, monkeypatch):
    pinned: list[str] = []
    monkeypatch.setattr(Batch, "pinned", lambda self: pinned.append(threading.current_thread().name) or self)
    with closing(PairBatches(*corpus, CONFIG, 60, seed=1).stream(share=BatchShare(pin=True))) as stream:
        next(stream)
    assert pinned
    assert threading.main_thread().name not in pinned


def test_batches_under_dropout_keep_to_the_budget(corpus):
    prepared, tokenizer = corpus
    with closing(PairBatches(prepared, tokenizer, replace(CONFIG, bpe_dropout=0.3), 200, seed=1).stream()) as stream:
        batches = list(islice(stream, 30))
    assert max(max(b.src.numel(), b.tgt_out.numel()) for b in batches) <= 200
    assert sum(b.n_source_tokens for b in batches) > 0.7 * sum(b.src.numel() for b in batches)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_every_epoch_has_every_pair_and_the_first_starts_largest(corpus, dropout, parts, monkeypatch):
    monkeypatch.setattr(batching, "WINDOW", 1000)
    prepared, tokenizer = corpus
    with closing(PairBatches(prepared, tokenizer, replace(CONFIG, bpe_dropout=dropout), 60, seed=1).stream()) as stream:
        epochs: dict[int, list[Batch]] = {0: [], 1: [], 2: []}
        for batch in stream:
            if stream.cursor.epoch == 2:
                break
            epochs[stream.cursor.epoch].append(batch)
    for batches in (epochs[0], epochs[1]):
        assert sorted(row for batch in batches for row in batch.index.tolist()) == list(range(len(prepared)))
    cells = [batch.src.numel() + batch.tgt_out.numel() for batch in epochs[0]]
    assert cells[0] == max(cells) or (parts and cells[0] > 0.9 * max(cells))


def test_a_batch_holds_the_pairs_of_its_index(corpus):
    prepared, tokenizer = corpus
    for dropout in (0.0, 0.4):
        with closing(
            PairBatches(prepared, tokenizer, replace(CONFIG, bpe_dropout=dropout), 60, seed=1).stream()
        ) as stream:
            for batch in islice(stream, 10):
                for row, index in enumerate(batch.index.tolist()):
                    texts = (
                        tokenizer.decode(batch.src[row].tolist()),
                        tokenizer.decode(batch.tgt_out[row].tolist()),
                    )
                    assert texts == prepared.text(index)


def test_dropout_changes_with_epoch_and_seed_but_never_in_validation(corpus):
    prepared, tokenizer = corpus
    config = replace(CONFIG, bpe_dropout=0.3)

    def epoch_sources(seed: int, epoch: int) -> dict[int, list[int]]:
        with closing(
            PairBatches(prepared, tokenizer, config, 60, seed).stream(state={"epoch": epoch, "position": 0})
        ) as stream:
            rows: dict[int, list[int]] = {}
            while len(rows) < len(prepared):
                batch = next(stream)
                rows |= dict(zip(batch.index.tolist(), batch.src.tolist(), strict=True))
            return rows

    drawn = [epoch_sources(seed, epoch) for seed, epoch in ((1, 0), (1, 1), (2, 0))]
    assert drawn[0] != drawn[1] != drawn[2] != drawn[0]
    for batch in validation_batches(prepared, tokenizer, 60):
        for row, index in enumerate(batch.index.tolist()):
            assert batch.src[row][: prepared.src_lengths[index] - 1].tolist() == prepared.src(index).tolist()


def test_dropout_of_the_source_alone_leaves_the_targets_as_they_are(corpus):
    prepared, tokenizer = corpus
    config = replace(CONFIG, bpe_dropout=0.3, bpe_dropout_sides="source")
    with closing(PairBatches(prepared, tokenizer, config, 60, seed=1).stream()) as stream:
        batches = list(islice(stream, 20))
    rows = [(batch, at, row) for batch in batches for at, row in enumerate(batch.index.tolist())]
    for batch, at, row in rows:
        assert batch.tgt_out[at, : prepared.tgt_lengths[row] - 1].tolist() == prepared.tgt(row).tolist()
    longer = [int(batch.src_mask[at].sum()) > prepared.src_lengths[row] for batch, at, row in rows]
    assert np.mean(longer) > 0.5


def test_dropout_never_makes_a_pair_too_long(corpus):
    prepared, tokenizer = corpus
    longest = int(max(prepared.src_lengths.max(), prepared.tgt_lengths.max()))
    config = replace(CONFIG, bpe_dropout=0.9, max_length=longest)
    with closing(PairBatches(prepared, tokenizer, config, 60, seed=1).stream()) as stream:
        assert all(max(batch.src.shape[1], batch.tgt_in.shape[1]) <= longest for batch in islice(stream, 20))


def test_validation_has_every_pair_once_in_fixed_batches(corpus):
    prepared, tokenizer = corpus
    passes = [list(validation_batches(prepared, tokenizer, 60)) for _ in range(2)]
    assert sorted(row for batch in passes[0] for row in batch.index.tolist()) == list(range(len(prepared)))
    assert all(map(same, *passes))


class Failing(PreparedCorpus):
    """A corpus whose text cannot be read."""

    def text(self, row: int) -> tuple[str, str]:
        raise OSError(f"row {row} is gone")


def threads() -> Iterator[threading.Thread]:
    return (thread for thread in threading.enumerate() if thread.daemon and "fill" in thread.name)


def test_an_error_in_the_thread_reaches_the_consumer(corpus):
    prepared, tokenizer = corpus
    failing = Failing(**vars(prepared))
    stream = PairBatches(failing, tokenizer, replace(CONFIG, bpe_dropout=0.1), 60, seed=1).stream()
    with pytest.raises(OSError, match="is gone"):
        next(stream)
    assert list(stream) == []
    assert not list(threads())


def test_the_thread_ends_with_the_stream(corpus):
    stream = PairBatches(*corpus, CONFIG, 60, seed=1).stream(prefetch=1)
    next(stream)
    assert len(list(threads())) == 1
    stream.close()
    assert not list(threads())
    assert list(stream) == []
    assert stream.state() == {"epoch": 0, "position": 1, "offset": 0}
    assert stream.wait_seconds > 0


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize(("size", "total"), [(2, 2), (2, 5), (3, 4)])
def test_ranks_share_the_batches_of_every_update(corpus, size, total, dropout, monkeypatch):
    """Together they have those of one process, in its order; they build no others, and resume after any update."""
    monkeypatch.setattr(batching, "WINDOW", 4)
    built: list[int] = []
    monkeypatch.setattr(batching, "collate", lambda *given, **more: built.append(1) or collate(*given, **more))
    batches = PairBatches(*corpus, replace(CONFIG, bpe_dropout=dropout), 60, seed=3)
    updates = 12
    with closing(batches.stream()) as whole:
        expected, states = [], [whole.state()]
        for _ in range(updates):
            expected.append(list(islice(whole, total)))
            states.append(whole.state())
    assert states[-1]["epoch"] > 0
    for rank in range(size):
        for first in (0, 5):
            built.clear()
            with closing(batches.stream(states[first], BatchShare(rank, size, total), prefetch=1)) as stream:
                for update, after in zip(expected[first:], states[first + 1 :], strict=True):
                    own = update[rank::size]
                    assert all(map(same, islice(stream, len(own)), own))
                    assert stream.state() == after
            ahead = 3  # in the queue, waiting for room in it, being built
            assert len(built) <= len(range(rank, total, size)) * (updates - first) + ahead

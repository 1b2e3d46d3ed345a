"""Mixtures of corpora: shares by hand, every pair before any repeats, exact resumption."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.config.data import TranslationData
from headwise.core.batches import Batch
from headwise.pytorch.data.batching import PairBatches
from headwise.pytorch.data.directions import BothDirections
from headwise.text.files.corpus import Corpus
from headwise.text.prepared import mixing
from headwise.text.prepared.batch_planning import Pairs, plan_epoch
from headwise.text.prepared.mixing import CorpusShare, Mixture, pairs_per_epoch, stride
from headwise.text.prepared.prepared import PreparedCorpus, prepare, train_tokenizer
from headwise.text.tokens.tokenizer import Tokenizer

CONFIG = TranslationData(vocab_size=300)
SIZES = (30, 8, 2)


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> tuple[PreparedCorpus, Tokenizer]:
    """Three corpora whose texts name them; the third has one pair that is dropped."""
    folder: Path = tmp_path_factory.mktemp("corpora")
    corpora = []
    for name, size in zip("abc", SIZES, strict=True):
        lines = [f"{name}{i} {'go ' * (i % 5)}\t{name}{i} {'geh ' * (i % 3)}\n" for i in range(size)]
        path = folder / f"{name}.tsv"
        path.write_text("".join([*lines, "\tleer\n"]), encoding="utf-8")
        corpora.append(Corpus((str(path),)))
    tokenizer = train_tokenizer(corpora, CONFIG, cache_dir=folder)
    return prepare(corpora, tokenizer, CONFIG, cache_dir=folder, progress=False), tokenizer


def mixture(corpus: PreparedCorpus, counts: list[int]) -> Mixture:
    starts = [0, SIZES[0], SIZES[0] + SIZES[1]]
    return Mixture([CorpusShare(corpus, *numbers) for numbers in zip(starts, SIZES, counts, strict=True)])


def texts(pairs: Pairs, epoch: int) -> list[str]:
    """The first word of every source of an epoch."""
    now = pairs.in_epoch(epoch)
    return [now.text(row)[0].split()[0] for row in range(len(now.src_lengths))]


def test_corpora_are_concatenated(material: tuple[PreparedCorpus, Tokenizer]) -> None:
    corpus, _ = material
    assert corpus.kept == [*SIZES] and corpus.read == sum(SIZES) + 3
    assert [corpus.text(row)[0].split()[0] for row in (0, 29, 30, 37, 38, 39)] == ["a0", "a29", "b0", "b7", "c0", "c1"]


@pytest.mark.parametrize(
    ("sizes", "weights", "temperature", "wanted"),
    [
        ((800, 160, 40), (1.0, 1.0, 1.0), 1.0, [800, 160, 40]),  # as they are
        ((810, 90), (1.0, 1.0), 2.0, [675, 225]),  # 3 to 1: the roots of 9 to 1
        ((1000, 10, 100), (1.0, 1.0, 1.0), 1e6, [370, 370, 370]),  # all alike
        ((800, 160, 40), (1.0, 5.0, 1.0), 1.0, [488, 488, 24]),  # 800, 800 and 40 of 1,640
        ((640, 10), (1.0, 8.0), 2.0, [325, 325]),  # 8 times 1 to 1 times 8
        ((10**9, 1), (1.0, 1.0), 1.0, [10**9, 1]),
        ((100, 100), (1e-9, 1.0), 1.0, [1, 200]),  # never none
    ],
)
def test_shares_by_hand(
    sizes: tuple[int, ...], weights: tuple[float, ...], temperature: float, wanted: list[int]
) -> None:
    assert pairs_per_epoch(sizes, weights, temperature) == wanted


@settings(max_examples=50)
@given(st.integers(1, 3000), st.integers(1, 200))
def test_a_stride_visits_all_rows_evenly(size: int, few: int) -> None:
    assert sorted(i * stride(size) % size for i in range(size)) == list(range(size))
    seen = sorted({i * stride(size) % size for i in range(min(few, size))})
    gaps = np.diff([*seen, seen[0] + size])
    assert gaps.max() <= max(4, 20 * size / len(seen))


@pytest.mark.parametrize("counts", [[30, 8, 2], [12, 12, 12], [7, 1, 30]])
def test_no_pair_repeats_before_all_were_sampled(material: tuple[PreparedCorpus, Tokenizer], counts: list[int]) -> None:
    mixed = mixture(material[0], counts)
    seen = Counter[str]()
    for epoch in range(12):
        now = texts(mixed, epoch)
        assert [sum(one[0] == name for one in now) for name in "abc"] == counts
        seen.update(now)
        for name, size in zip("abc", SIZES, strict=True):
            times = [seen[f"{name}{i}"] for i in range(size)]
            assert max(times) - min(times) <= 1


def test_lengths_are_those_of_the_pairs(
    material: tuple[PreparedCorpus, Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mixing, "PART", 7)
    for epoch in (0, 3):
        now = mixture(material[0], [11, 20, 9]).in_epoch(epoch)
        assert now.src_lengths.tolist() == [len(now.src(row)) + 1 for row in range(40)]
        assert now.tgt_lengths.tolist() == [len(now.tgt(row)) + 1 for row in range(40)]


def test_a_batch_has_pairs_of_all_corpora(material: tuple[PreparedCorpus, Tokenizer]) -> None:
    now = mixture(material[0], [14, 13, 13]).in_epoch(0)
    for plan in plan_epoch(now.src_lengths, now.tgt_lengths, 60, seed=1, epoch=0, bucketed=False):
        names = [{now.text(row)[0][0] for row in rows.tolist()} for rows in plan]
        assert len(plan) > 3 and sum(len(one) == 3 for one in names) > len(plan) / 2


@pytest.mark.parametrize("changes", [{}, {"bpe_dropout": 0.3}])
@pytest.mark.parametrize("both", [False, True])
def test_a_resumed_stream_is_exact(
    material: tuple[PreparedCorpus, Tokenizer], changes: dict[str, float], both: bool
) -> None:
    """Across the ends of epochs, each of which has other pairs."""
    corpus, tokenizer = material
    pairs: Pairs = mixture(corpus, [11, 20, 9])
    asked = BothDirections(pairs) if both else pairs, tokenizer, replace(CONFIG, **changes), 60

    def flat(batches: Iterator[Batch]) -> list[tuple[list[int], ...]]:
        return [(batch.src.flatten().tolist(), batch.tgt_in.flatten().tolist()) for batch in batches]

    with closing(PairBatches(*asked, seed=3).stream()) as whole:
        given, states = [], [whole.state()]
        for batch in islice(whole, 60):
            given += flat(iter([batch]))
            states.append(whole.state())
    assert states[-1]["epoch"] >= 2
    first = [batches for batches, state in zip(given, states[1:], strict=True) if state["epoch"] == 0]
    assert given[len(first) : 2 * len(first)] != first
    for start in (1, len(first), len(first) + 3):
        with closing(PairBatches(*asked, seed=3).stream(state=states[start])) as rest:
            assert flat(islice(rest, 10)) == given[start : start + 10]


def test_epochs_have_different_orders(material: tuple[PreparedCorpus, Tokenizer]) -> None:
    """A corpus that is larger than its share has other pairs, too."""
    mixed = mixture(material[0], [5, 8, 2])
    assert set(texts(mixed, 0)) & set(texts(mixed, 1)) == {*texts(mixed, 0)[5:]}


def test_a_stream_reads_the_sample_of_each_epoch(material: tuple[PreparedCorpus, Tokenizer]) -> None:
    corpus, tokenizer = material
    mixed = mixture(corpus, [5, 8, 2])
    read: list[list[list[int]]] = [[], [], [], []]
    with closing(PairBatches(mixed, tokenizer, CONFIG, 60, seed=1).stream()) as stream:
        while stream.cursor.epoch < 3:
            batch = next(stream)
            read[stream.cursor.epoch] += [
                src[mask].tolist() for src, mask in zip(batch.src, batch.src_mask, strict=True)
            ]
    for epoch, sources in enumerate(read[:3]):
        now = mixed.in_epoch(epoch)
        assert sorted(sources) == sorted([*now.src(row).tolist(), tokenizer.eos_id] for row in range(15))

"""Estimating a shortlist: a planted dictionary is recovered for any word order and chunk size."""

import random

import numpy as np
import pytest

from headwise.text.files.columns import Column
from headwise.text.prepared import shortlist as module
from headwise.text.prepared.prepared import PreparedCorpus
from headwise.text.prepared.shortlist import Lexicon, estimate_shortlist

VOCAB = 60
COMMON = [57, 58, 59]  # target pieces that stand everywhere


def column(rows: list[list[int]]) -> Column:
    flat = np.array([token for row in rows for token in row], np.int32)
    return Column(flat, np.cumsum([0, *map(len, rows)]))


def corpus(src: list[list[int]], tgt: list[list[int]]) -> PreparedCorpus:
    """A corpus without texts, which are not needed here."""
    lengths = (np.array([len(row) + 1 for row in side], np.int32) for side in (src, tgt))
    return PreparedCorpus({"src": column(src), "tgt": column(tgt)}, *lengths, [len(src)], len(src), {}, "")


def translations(token: int) -> list[int]:
    """The translation of a source token of 4 to 23: two adjacent target tokens."""
    return [24 + (token - 4), 24 + (token - 4 + 7) % 20]


@pytest.fixture
def planted() -> PreparedCorpus:
    draw = random.Random(1)
    src = [draw.sample(range(4, 24), draw.randint(3, 8)) for _ in range(400)]
    tgt = [[draw.choice(translations(token)) for token in row] + COMMON for row in src]
    for row in tgt:
        draw.shuffle(row)
    return corpus(src, tgt)


def test_a_planted_dictionary_is_recovered(planted: PreparedCorpus) -> None:
    shortlist = estimate_shortlist(planted, VOCAB, candidates=2, frequent=3)
    assert sorted(shortlist.frequent) == COMMON
    assert all(set(shortlist.likely[token]) == set(translations(token)) for token in range(4, 24))


def test_unseen_source_tokens_get_a_frequent_candidate(planted: PreparedCorpus) -> None:
    shortlist = estimate_shortlist(planted, VOCAB, candidates=4, frequent=3)
    assert shortlist.likely.shape == (VOCAB, 4)
    assert (shortlist.likely[[0, 3, 30, 59]] == shortlist.frequent[0]).all()


def test_probabilities_are_those_of_model_1() -> None:
    """The textbook corpus (Koehn 2010, figure 4.4), here with an empty word, compared with the plain algorithm."""
    pairs = [([0, 1], [0, 1]), ([0, 2], [0, 2]), ([3, 2], [3, 2])]  # the house, the book, a book
    data = corpus(*(list(side) for side in zip(*pairs, strict=True)))
    lexicon = module._cooccurring(data.columns["src"], data.columns["tgt"], 4)
    table = {(s, t): 1.0 for src, tgt in pairs for s in [*src, 4] for t in tgt}
    for _ in range(5):
        lexicon = module._reestimate(lexicon, data.columns["src"], data.columns["tgt"])
        counts = dict.fromkeys(table, 0.0)
        for src, tgt in pairs:
            for t in tgt:
                whole = sum(table[s, t] for s in [*src, 4])
                for s in [*src, 4]:
                    counts[s, t] += table[s, t] / whole
        rows = {s: sum(count for (source, _), count in counts.items() if source == s) for s, _ in counts}
        table = {(s, t): count / rows[s] for (s, t), count in counts.items()}
    assert table[0, 0] > 0.5  # "the" is "das": otherwise the comparison means little
    entries = zip(lexicon.source.tolist(), lexicon.target.tolist(), lexicon.probability, strict=True)
    found = {(s, t): probability for s, t, probability in entries}
    assert found == pytest.approx(table)


def test_the_size_of_a_chunk_changes_nothing(planted: PreparedCorpus, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = estimate_shortlist(planted, VOCAB, 3, 3)
    monkeypatch.setattr(module, "CHUNK_CELLS", 70)
    assert len(list(module._chunks(planted.columns["src"], planted.columns["tgt"], VOCAB))) > 100
    pieces = estimate_shortlist(planted, VOCAB, 3, 3)
    assert (whole.likely == pieces.likely).all() and (whole.frequent == pieces.frequent).all()


def test_the_rarest_pairs_are_dropped_above_the_limit(planted: PreparedCorpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ENTRIES", 300)
    lexicon: Lexicon = module._cooccurring(planted.columns["src"], planted.columns["tgt"], VOCAB)
    assert len(lexicon.codes) == 300 and (np.diff(lexicon.codes) > 0).all()
    shortlist = estimate_shortlist(planted, VOCAB, candidates=2, frequent=3)
    kept = [set(shortlist.likely[token]) == set(translations(token)) for token in range(4, 24)]
    assert sum(kept) > 15

"""Cheap baselines: known answers on small data, and published orders of magnitude on real ones."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.evaluate import baselines
from headwise.evaluate.baselines import linear_forecaster, most_similar, nearest_labels, ngram_loss, tfidf_labels

SENTENCES = st.lists(st.sampled_from(["a", "the", "Dog", "runs", "cat", "7"]), max_size=5).map(" ".join)


def read_gz(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode()


def test_probabilities_of_all_tokens_sum_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """After known, partly known and unknown contexts; also for tokens that training does not have."""
    monkeypatch.setattr(baselines, "ORDER", 3)
    generator, vocab = np.random.default_rng(0), 7
    train = generator.integers(0, vocab - 1, 200)
    for context in ([1, 2], [int(train[-2]), int(train[-1])], [vocab - 1, 3]):
        losses = [ngram_loss(train, np.array([*context, token]), vocab) * 2 for token in range(vocab)]
        [first] = {ngram_loss(train, np.array(context), vocab)}
        assert sum(np.exp(first - loss) for loss in losses) == pytest.approx(1)


def test_ngrams_of_a_repeated_text_are_certain_and_of_noise_are_not() -> None:
    alphabet, generator = np.arange(20), np.random.default_rng(0)
    assert ngram_loss(np.tile(alphabet, 50), np.tile(alphabet, 3), 20) < 0.1
    noise = generator.integers(0, 20, 2000)
    assert ngram_loss(noise, generator.integers(0, 20, 500), 20) == pytest.approx(np.log(20), rel=0.1)


def test_characters_of_shakespeare(shared_data: Path) -> None:
    """A tenth of the text; the whole gives 1.52 nats in five seconds."""
    text = read_gz(shared_data / "lm" / "tinyshakespeare.txt.gz")[:110_000]
    numbers = {one: i for i, one in enumerate(sorted({*text}))}
    ids = np.array([numbers[one] for one in text])
    assert 1.5 < ngram_loss(ids[:100_000], ids[100_000:], len(numbers)) < 1.7


@given(st.lists(SENTENCES, min_size=1, max_size=12), st.lists(SENTENCES, max_size=4))
def test_the_most_similar_text_is_that_of_scikit_learn(texts: list[str], queries: list[str]) -> None:
    """Its TF-IDF of different words, by the same formula; of texts that are equally similar the first one counts."""
    text = pytest.importorskip("sklearn.feature_extraction.text")
    vectors = text.TfidfVectorizer(analyzer=lambda one: {*one.lower().split()}, smooth_idf=False)
    found = most_similar(texts, queries)
    if not any(one.split() for one in texts):
        assert found == [0] * len(queries)
        return
    known = vectors.fit_transform(texts).toarray()
    for query, number in zip(queries, found, strict=True):
        similar = known @ vectors.transform([query]).toarray()[0]
        assert number == np.flatnonzero(similar > similar.max() - 1e-9)[0]


def test_a_linear_series_is_forecast_exactly() -> None:
    """Each window has its own slope; the forecasts go on with it."""
    slopes = np.linspace(-2, 2, 50)[:, None]
    windows, targets = slopes * np.arange(-4, 1), slopes * np.arange(1, 4)
    found = linear_forecaster(windows[::2], targets[::2])(windows[1::2])
    np.testing.assert_allclose(found, targets[1::2], rtol=1e-2, atol=1e-2)
    constant = np.zeros((5, 4))
    assert np.isfinite(linear_forecaster(constant, constant[:, :2])(constant)).all()


def test_nearest_neighbours_vote() -> None:
    train = np.array([[0.0], [0.1], [0.2], [0.3], [5.0], [5.1], [9.0]], np.float32)
    labels = np.array([0, 0, 1, 0, 1, 1, 1])
    assert nearest_labels(train, labels, np.array([[0.15], [8.0]], np.float32)).tolist() == [0, 1]
    assert nearest_labels(train[:2], labels[:2], train[4:5]).tolist() == [0]  # fewer images than neighbours


@pytest.mark.parametrize("words", [("good film", "bad film"), ("好电影", "坏电影")])
def test_words_and_characters_of_texts_tell_their_labels(words: tuple[str, str]) -> None:
    pytest.importorskip("sklearn")
    texts, labels = [f"{one}{'!' * i}" for i in range(4) for one in words], ["+", "-"] * 4
    assert tfidf_labels(texts, labels, [f"{one}?" for one in words]) == ["+", "-"]


def test_questions_of_trec(shared_data: Path) -> None:
    pytest.importorskip("sklearn")
    parts = []
    for name in ("train", "test"):
        lines = read_gz(shared_data / "cls" / f"trec.{name}.txt.gz").splitlines()
        rows = [line.split(" ", 1) for line in lines[:1500]]
        parts.append(([text for _, text in rows], [label.split(":")[0] for label, _ in rows]))
    (texts, labels), (valid, true) = parts
    found = tfidf_labels(texts, labels, valid)
    assert found and np.mean([one == other for one, other in zip(found, true, strict=True)]) > 0.75

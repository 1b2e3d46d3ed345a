"""Baselines that cost seconds, on the data of a training: what a trained model should beat.

Each is a few lines of numpy, but for the classifier of texts, which is scikit-learn's. Large training data are sampled
evenly, so that the time is bounded. See `Job.baseline` for guessing and `headwise.pytorch.tasks` for the baseline of
each task.
"""

import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from headwise.text.files.scripts import split_words

INSTALL = 'pip install "headwise[baselines]"'
MOST_TEXTS, MOST_PICTURES, MOST_WINDOWS, MOST_TOKENS = 20_000, 10_000, 20_000, 2_000_000  # for training
MOST_PAIRS = 200_000
NEIGHBOURS, ORDER = 5, 6
REGULARISATION = 10.0  # inverse strength, scikit-learn's C
RIDGE = 1e-3  # of the mean square of the inputs
AT_ONCE = 500  # pictures compared, or windows read, at once


@dataclass(frozen=True)
class Baseline:
    """A cheap model and its metrics on the validation data."""

    name: str
    figures: dict[str, float] = field(default_factory=dict)  # by the names of the task's validation; {} = not computed
    advice: str = ""  # what helps a network that is worse
    missing: str = ""  # why there are no figures

    def as_json(self) -> dict[str, Any]:
        """An entry of "baselines" in config.json."""
        return {name: value for name, value in asdict(self).items() if value}


def evenly(n: int, most: int) -> NDArray[np.int64]:
    """At most this many of n positions, evenly spaced.

    >>> evenly(5, 9).tolist(), evenly(10, 3).tolist()
    ([0, 1, 2, 3, 4], [0, 3, 6])
    """
    return np.arange(n) if n <= most else np.arange(most) * n // most


# --- Texts


def tfidf_labels(texts: Sequence[str], labels: Sequence[str], valid: Sequence[str]) -> list[str] | None:
    """The labels of logistic regression on TF-IDF weights of words and pairs of words; None without scikit-learn.

    Texts without spaces between words are read as characters.
    """
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
    except ImportError:
        return None
    spaced = sum(" " in text.strip() for text in texts) * 2 > len(texts)
    words = {"analyzer": "word", "ngram_range": (1, 2), "token_pattern": r"\w+|[^\w\s]"}
    reading: dict[str, Any] = words if spaced else {"analyzer": "char", "ngram_range": (1, 3)}
    vectors, model = TfidfVectorizer(sublinear_tf=True, **reading), LogisticRegression(C=REGULARISATION, max_iter=300)
    rows: list[int] = evenly(len(texts), MOST_TEXTS).tolist()
    chosen = [labels[i] for i in rows]
    if len({*chosen}) < 2:
        return [chosen[0] for _ in valid]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of convergence
        model.fit(vectors.fit_transform([f"{texts[i]} " for i in rows]), chosen)
    found: Any = model.predict(vectors.transform(valid))
    return found.tolist()


def most_similar(texts: Sequence[str], queries: Iterable[str]) -> list[int]:
    """For each query the number of the most similar text: by the cosine of the TF-IDF weights of their different words.

    >>> most_similar(["a dog runs", "a cat", "two dogs run"], ["The cat runs", "a dog"])
    [1, 0]
    """
    numbers: dict[str, int] = {}
    words = [[numbers.setdefault(word, len(numbers)) for word in _words(text)] for text in texts]
    row = np.repeat(np.arange(len(texts)), [len(own) for own in words])
    word = np.fromiter(chain.from_iterable(words), np.int64, len(row))
    weights = np.square(np.log(len(texts) / np.bincount(word)) + 1)
    norms = np.sqrt(np.bincount(row, weights[word], len(texts))) + 1e-12  # a text may have no word
    order = np.argsort(word, kind="stable")
    row, first = row[order], np.searchsorted(word[order], np.arange(len(numbers) + 1))
    found = list[int]()
    for query in queries:
        products = np.zeros(len(texts))
        for number in (numbers[word] for word in _words(query) if word in numbers):
            products[row[first[number] : first[number + 1]]] += weights[number]
        found.append(int(np.argmax(products / norms)))
    return found


def _words(text: str) -> list[str]:
    return list(dict.fromkeys(split_words(text.lower())))


def usual_tags(
    sentences: Iterable[tuple[Sequence[str], Sequence[str]]], valid: Iterable[Sequence[str]]
) -> list[list[str]]:
    """For each word its most frequent tag in training; for unknown words the most frequent tag.

    >>> usual_tags([(["a", "dog"], ["O", "X"]), (["a"], ["O"])], [["dog", "cat"]])
    [['X', 'O']]
    """
    counts, total = defaultdict[str, Counter[str]](Counter), Counter[str]()
    for words, tags in sentences:
        for word, tag in zip(words, tags, strict=True):
            counts[word][tag] += 1
        total.update(tags)
    usual = {word: found.most_common(1)[0][0] for word, found in counts.items()}
    [(most, _)] = total.most_common(1)
    return [[usual.get(word, most) for word in words] for words in valid]


# --- Pictures


def nearest_labels(
    train: Float[np.ndarray, "train values"],
    labels: Int[np.ndarray, " train"],
    valid: Float[np.ndarray, "valid values"],
) -> Int[np.ndarray, " valid"]:
    """The most frequent label among the nearest neighbours, by Euclidean distance; the nearest one breaks ties."""
    squares, found = np.square(train).sum(1), list[int]()
    for start in range(0, len(valid), AT_ONCE):
        distances = squares - 2 * valid[start : start + AT_ONCE] @ train.T
        k = min(NEIGHBOURS, len(train))
        nearest = np.argpartition(distances, k - 1, axis=1)[:, :k]
        order = np.argsort(np.take_along_axis(distances, nearest, 1), axis=1, kind="stable")
        for row in labels[np.take_along_axis(nearest, order, 1)].tolist():
            found.append(Counter(row).most_common(1)[0][0])
    return np.array(found, np.int64)


# --- Time series


def linear_forecaster(
    windows: Float[np.ndarray, "train window"], targets: Float[np.ndarray, "train horizon"]
) -> Callable[[NDArray[Any]], NDArray[np.float64]]:
    """A linear model, by least squares with a little ridge, that maps windows (n, window) to forecasts (n, horizon).

    All values are differences from the last one of their window.
    """
    inputs = np.concatenate([windows, np.ones_like(windows[:, :1])], 1).astype(np.float64)
    products = inputs.T @ inputs
    ridge = RIDGE * max(np.trace(products) / len(products), 1e-12)
    weights = np.linalg.solve(products + ridge * np.eye(len(products)), inputs.T @ targets.astype(np.float64))
    return lambda some: some @ weights[:-1] + weights[-1]


# --- Tokens


def ngram_loss(train: Int[np.ndarray, " train"], valid: Int[np.ndarray, " valid"], vocab_size: int) -> float:
    """Mean negative log-probability, in nats, of each validation token but the first, by n-grams of tokens.

    Modified Kneser-Ney smoothing, interpolated (Chen and Goodman 1998, section 3); probabilities of the lowest order
    are interpolated with the uniform distribution. An n-gram is the number of its last n-1 tokens and of the one before
    them, so that numbers fit into 64 bits.
    """
    train = train[-MOST_TOKENS:]
    n, tokens = len(train), np.concatenate([train, valid]).astype(np.int64)
    grams = [np.zeros(len(tokens), np.int64), tokens]  # by order, the number of the n-gram that ends at each token
    for order in range(2, ORDER + 1):
        before = np.concatenate([np.full(order - 1, vocab_size), tokens[: 1 - order]])
        grams.append(np.unique(grams[-1] * (vocab_size + 1) + before, return_inverse=True)[1])
    probability = np.full(len(tokens) - n, 1 / vocab_size)
    for order in range(1, ORDER + 1):
        gram, context = grams[order], np.concatenate([[0], grams[order - 1][:-1]])
        counted = np.arange(n)
        if order < ORDER:  # count the different tokens before an n-gram, not occurrences
            counted = np.unique(grams[order + 1][:n], return_index=True)[1]
        counts = np.bincount(gram[counted], minlength=int(gram.max()) + 1)
        kinds = np.unique(gram[counted], return_index=True)[1]
        where = counted[kinds]  # one place of each n-gram
        often, contexts = counts[gram[where]], context[where]
        discounts = _discounts(often)
        size = int(context.max()) + 1
        total = np.bincount(contexts, often, minlength=size)[context[n:]]
        rest = np.bincount(contexts, discounts[np.minimum(often, 3)], minlength=size)[context[n:]]
        seen = counts[gram[n:]]
        kept = np.maximum(seen - discounts[np.minimum(seen, 3)], 0.0)
        known = total > 0
        probability[known] = ((kept + rest * probability)[known]) / total[known]
    return float(-np.log(probability[1:]).mean())


def _discounts(counts: NDArray[np.int64]) -> Float[np.ndarray, "4"]:
    """The discounts of n-grams that occur 0, 1, 2 and 3 or more times (equation 26); between 0 and the count."""
    n1, n2, n3, n4 = (max(1, int((counts == i).sum())) for i in range(1, 5))
    share = n1 / (n1 + 2 * n2)
    given = [0.0, 1 - 2 * share * n2 / n1, 2 - 3 * share * n3 / n2, 3 - 4 * share * n4 / n3]
    return np.clip(given, [0.0, 0.1, 0.1, 0.1], [0.0, 0.9, 1.9, 2.9])

"""What anybody tries first: a cheap baseline of seconds for each data set of `tasks.py`.

Texts: TF-IDF and logistic regression (scikit-learn). Series: a linear model of the differences from the last value.
Pictures: the nearest neighbours. Characters: interpolated Kneser-Ney n-grams (Chen and Goodman 1999, section 2.7).
Spelling to sound: the most frequent sounds of the widest known window of letters.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Aligned = list[tuple[str, ...]]  # the sounds of each letter of a word
WINDOWS = ((4, 4), (3, 4), (3, 3), (2, 3), (2, 2), (1, 2), (1, 1), (0, 1), (0, 0))  # letters before and after
MOST = 2  # sounds of a letter


def text_accuracy(train: Sequence[tuple[str, str]], test: Sequence[tuple[str, str]]) -> float:
    """Share of texts with the right label, by logistic regression on TF-IDF of words and pairs of words."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    vectors = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"\S+", sublinear_tf=True)
    (texts, labels), (questions, answers) = zip(*train, strict=True), zip(*test, strict=True)
    model = LogisticRegression(C=100, max_iter=1000).fit(vectors.fit_transform(texts), labels)
    return float(model.score(vectors.transform(questions), answers))


def linear_error(train: Floats, test: Floats, window: int, horizon: int, ridge: float = 100.0) -> float:
    """Mean absolute error of a ridge regression on one column, all as differences from the last known value."""
    mean, deviation = train.mean(), train.std()
    (x, y), (given, true) = (_differences((part - mean) / deviation, window, horizon) for part in (train, test))
    centre, level = x.mean(0), y.mean(0)
    weights = np.linalg.solve((x - centre).T @ (x - centre) + ridge * np.eye(window), (x - centre).T @ (y - level))
    return float(np.abs((given - centre) @ weights + level - true).mean() * deviation)


def _differences(series: Floats, window: int, horizon: int) -> tuple[Floats, Floats]:
    windows = np.lib.stride_tricks.sliding_window_view(series, window + horizon)
    changes = windows - windows[:, window - 1 : window]
    return changes[:, :window], changes[:, window:]


def neighbour_accuracy(
    train: Floats, labels: NDArray[np.int64], test: Floats, answers: NDArray[np.int64], neighbours: int = 3
) -> float:
    """Share of pictures, one a row, that the nearest neighbours by Euclidean distance label right."""
    squares = (train**2).sum(1)
    distances = squares - 2 * test @ train.T  # plus the square of the picture, the same for all
    nearest = np.argpartition(distances, neighbours, axis=1)[:, :neighbours]
    votes = np.array([np.bincount(labels[row], minlength=labels.max() + 1).argmax() for row in nearest])
    return float((votes == answers).mean())


def kneser_ney_loss(train: str, test: str, order: int = 6) -> float:
    """Nats a character of `test`, by n-grams of characters of `train`."""
    counts: list[Counter[str]] = [Counter(train[i : i + order] for i in range(len(train) - order + 1))]
    for _ in range(order - 1):  # of lower orders: how many different characters come before
        counts.insert(0, Counter(gram[1:] for gram in counts[0]))
    discounts, totals, kinds = [], [], []
    for table in counts:
        frequencies = Counter(table.values())
        discounts.append(frequencies[1] / (frequencies[1] + 2 * frequencies[2]) if frequencies[1] else 0.5)
        total, kind = Counter[str](), Counter[str]()
        for gram, count in table.items():
            total[gram[:-1]] += count
            kind[gram[:-1]] += 1
        totals.append(total)
        kinds.append(kind)
    uniform = 1 / len({*train, *test})
    loss = 0.0
    for position, character in enumerate(test):
        probability = uniform
        for length in range(min(order, position + 1)):
            context = test[position - length : position]
            if context not in totals[length]:
                break
            seen = max(counts[length][context + character] - discounts[length], 0)
            kept = discounts[length] * kinds[length][context] * probability
            probability = (seen + kept) / totals[length][context]
        loss -= math.log(probability)
    return loss / len(test)


class LetterWindows:
    """Sounds of a word by windows of letters. Letters and sounds are aligned by expectation maximisation (Viterbi)."""

    def __init__(self, pairs: Sequence[tuple[list[str], list[str]]], rounds: int = 4) -> None:
        costs = _first_costs(pairs)
        for number in range(rounds):
            last = number == rounds - 1
            counts: Counter[tuple[str, tuple[str, ...]]] = Counter()
            for letters, sounds in pairs if last else pairs[:: 4 if len(pairs) > 10_000 else 1]:
                counts.update(zip(letters, align(letters, sounds, costs) or (), strict=False))
            costs = _costs(counts)
        self.tables = [defaultdict[str, Counter[tuple[str, ...]]](Counter) for _ in WINDOWS]
        for letters, sounds in pairs:
            for table, (window, chosen) in self._rows(letters, align(letters, sounds, costs) or []):
                table[window][chosen] += 1

    def _rows(self, letters: list[str], aligned: Aligned) -> Iterator[tuple[dict, tuple[str, tuple[str, ...]]]]:
        for position, chosen in enumerate(aligned):
            for table, window in zip(self.tables, windows_around(letters, position), strict=True):
                yield table, (window, chosen)

    def sounds(self, letters: list[str]) -> list[str]:
        """The most frequent sounds of each letter in the widest window that was seen."""
        found: list[str] = []
        for position in range(len(letters)):
            known = zip(self.tables, windows_around(letters, position), strict=True)
            seen = next((table[window] for table, window in known if window in table), None)
            found += seen.most_common(1)[0][0] if seen else []
        return found


def windows_around(letters: list[str], position: int) -> Iterator[str]:
    """The windows of `WINDOWS`, the widest first; # stands for letters beyond the word."""
    widest = max(map(max, WINDOWS))
    padded = ["#"] * widest + letters + ["#"] * widest
    for before, after in WINDOWS:
        yield "".join(padded[position + widest - before : position + widest + after + 1])


def align(letters: list[str], sounds: list[str], costs: dict[tuple[str, tuple[str, ...]], float]) -> Aligned | None:
    """The cheapest split of the sounds among the letters, 0 to 2 each; None if there are too many sounds."""
    n, m = len(letters), len(sounds)
    best = [[math.inf] * (m + 1) for _ in range(n + 1)]
    taken = [[0] * (m + 1) for _ in range(n + 1)]
    best[0][0] = 0.0
    for i, letter in enumerate(letters):
        for j in range(max(0, m - MOST * (n - i)), min(m, MOST * i) + 1):
            for size in range(min(MOST, m - j) + 1):
                cost = best[i][j] + costs.get((letter, tuple(sounds[j : j + size])), 12.0 + 4 * size)
                if cost < best[i + 1][j + size]:
                    best[i + 1][j + size], taken[i + 1][j + size] = cost, size
    if best[n][m] == math.inf:
        return None
    aligned, end = [], m
    for i in range(n, 0, -1):
        size = taken[i][end]
        aligned.append(tuple(sounds[end - size : end]))
        end -= size
    return aligned[::-1]


def _first_costs(pairs: Sequence[tuple[list[str], list[str]]]) -> dict[tuple[str, tuple[str, ...]], float]:
    """From how often a letter and a sound have about the same position."""
    counts: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for letters, sounds in pairs:
        for i, letter in enumerate(letters):
            nearest = min(len(sounds) - 1, i * len(sounds) // len(letters))
            for j in range(max(0, nearest - 1), min(len(sounds), nearest + 2)):
                counts[letter, (sounds[j],)] += 2 if j == nearest else 1
            counts[letter, ()] += 1
    return _costs(counts)


def _costs(counts: Counter[tuple[str, tuple[str, ...]]]) -> dict[tuple[str, tuple[str, ...]], float]:
    letters: Counter[str] = Counter()
    for (letter, _), count in counts.items():
        letters[letter] += count
    return {key: -math.log(count / letters[key[0]]) for key, count in counts.items()}


def edit_distance(found: Sequence[str], true: Sequence[str]) -> int:
    """Substitutions, deletions and insertions.

    >>> edit_distance(["K", "AE", "T"], ["K", "AH", "T", "S"])
    2
    """
    row = list(range(len(true) + 1))
    for i, one in enumerate(found, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(true, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (one != other))
    return row[-1]


def error_rate(found: Sequence[Sequence[str]], true: Sequence[Sequence[str]]) -> float:
    """Edits for each symbol of the truth, over all sequences."""
    pairs = [*zip(found, true, strict=True)]
    return sum(edit_distance(*pair) for pair in pairs) / sum(len(answer) for _, answer in pairs)

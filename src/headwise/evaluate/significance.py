"""Significance of the difference between two systems: paired bootstrap over the lines of a test set.

A corpus score is computed from the statistics of its lines (`measure.Measure`). A sample has as many lines, sampled
with replacement, and is scored from their sum.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from headwise.errors import UserError
from headwise.evaluate.bleu import METRICS, measures
from headwise.evaluate.measure import Measure, References

SAMPLES, SEED = 1000, 12345  # of the bootstrap; the seed is sacreBLEU's


@dataclass(frozen=True)
class Interval:
    """A system's score, and mean and half width of its 95 % confidence interval over bootstrap samples."""

    score: float
    mean: float
    ci: float


@dataclass(frozen=True)
class Comparison:
    """Two systems under one metric."""

    name: str
    a: Interval
    b: Interval
    p_value: float
    signature: str


def comparison_as_json(comparisons: dict[str, Comparison]) -> dict[str, dict[str, object]]:
    """`{"BLEU": {"name": "BLEU", "a": {"score": ...}, "b": {...}, "p_value": 0.01, ...}, ...}`."""
    return {name: asdict(comparison) for name, comparison in comparisons.items()}


def resampled(
    measure: Measure, statistics: NDArray[np.float64], n_samples: int = SAMPLES, seed: int = SEED
) -> NDArray[np.float64]:
    """Scores of bootstrap samples, which have the same lines for every system of as many lines."""
    lines = len(statistics)
    sampled = np.random.default_rng(seed).choice(lines, size=(n_samples, lines), replace=True)
    counts = np.stack([np.bincount(row, minlength=lines) for row in sampled])
    return np.array([measure.metric._compute_score_from_stats(sums).score for sums in counts @ statistics], dtype=float)


def paired_bootstrap(
    hypotheses_a: Sequence[str],
    hypotheses_b: Sequence[str],
    references: References,
    metrics: Sequence[str] = METRICS,
    n_samples: int = SAMPLES,
    seed: int = SEED,
    tokenize: str = "",
    lowercase: bool = False,
    multi30k: str = "",
) -> dict[str, Comparison]:
    """Test whether system b differs from a by paired bootstrap (Koehn 2004, W04-3250), with the figures of sacreBLEU.

    Both systems are scored on the same `n_samples` bootstrap samples. The usual threshold is p < 0.05; with a few
    hundred lines a difference of half a point rarely reaches it.
    """
    if n_samples < 1 or seed < 1:
        raise UserError(f"n_samples and seed must be at least 1, not {n_samples} and {seed}")
    comparisons = {}
    for measure in measures(metrics, tokenize, lowercase, multi30k, references):
        a, b = (measure.statistics(hypotheses, references) for hypotheses in (hypotheses_a, hypotheses_b))
        comparisons[measure.name] = compare_two(measure, a, b, n_samples, seed)
    return comparisons


def compare_two(
    measure: Measure, a: NDArray[np.float64], b: NDArray[np.float64], n_samples: int = SAMPLES, seed: int = SEED
) -> Comparison:
    """Two systems by the statistics of their lines, (lines, figures), as in `paired_bootstrap`."""
    scores = [measure.score(a).score], [measure.score(b).score]
    samples = [resampled(measure, a, n_samples, seed)], [resampled(measure, b, n_samples, seed)]
    return compare(measure.name, measure.signature(seed=seed, bs=n_samples), scores, samples, seed)


def compare(
    name: str,
    signature: str,
    scores: tuple[Sequence[float], Sequence[float]],
    samples: tuple[Sequence[NDArray[np.float64]], Sequence[NDArray[np.float64]]],
    seed: int = SEED,
) -> Comparison:
    """Compare two systems, each trained once or with several seeds: `scores` of the runs, and their `resampled` scores.

    The score of a system is the mean over its runs. Each sample also samples its runs with replacement, because the
    seed is random like the test set (Clark et al. 2011, P11-2031).
    """
    rng = np.random.default_rng(seed)
    real = [float(np.mean(own)) for own in scores]
    a, b = (_mean_of_sampled(np.stack(own), rng) for own in samples)
    differences = np.abs(a - b)
    beyond = int((differences - differences.mean() > abs(real[0] - real[1])).sum())
    # For equal scores the count gives the smallest p-value, but every difference is at least as large.
    p_value = 1.0 if real[0] == real[1] else (beyond + 1) / (len(differences) + 1)
    return Comparison(name, _interval(real[0], a), _interval(real[1], b), p_value, signature)


def _mean_of_sampled(samples: NDArray[np.float64], rng: "np.random.Generator") -> NDArray[np.float64]:
    runs = rng.integers(len(samples), size=samples.shape)
    return np.take_along_axis(samples, runs, axis=0).mean(0)


def _interval(score: float, samples: NDArray[np.float64]) -> Interval:
    ordered, edge = np.sort(samples), len(samples) // 40
    return Interval(score, float(samples.mean()), float(ordered[-edge - 1] - ordered[edge]) / 2)

"""Metrics of predicted numbers (regression): errors, and correlations as in GLUE's STS-B (arXiv:1804.07461)."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.text.files.sources import count_of


@dataclass(frozen=True)
class RegressionReport:
    """Scores of a test set; correlations are 0 where the numbers of one side are all equal."""

    mae: float  # mean absolute error, in the units of the numbers
    mse: float  # mean squared error
    pearson: float  # correlation, from -1 to 1
    spearman: float  # correlation of ranks
    texts: int

    def as_json(self) -> dict[str, Any]:
        """The figures."""
        return asdict(self)

    def render(self) -> str:
        """One line for people."""
        correlations = f"Pearson {self.pearson:.4f}, Spearman {self.spearman:.4f}"
        errors = f"mean absolute error {self.mae:.4g}, mean squared error {self.mse:.4g}"
        return f"{correlations}, {errors} ({count_of(self.texts, 'text')})"


def regression_report(true: Sequence[float], predicted: Sequence[float]) -> RegressionReport:
    """Scores of predicted numbers.

    >>> report = regression_report([1.0, 2.0, 3.0], [1.0, 3.0, 9.0])
    >>> report.mse, round(report.pearson, 3), report.spearman
    (12.333333333333334, 0.961, 1.0)
    """
    a, b = np.asarray(true, float), np.asarray(predicted, float)
    error = b - a
    correlations = correlation(a, b), correlation(mean_ranks(a), mean_ranks(b))
    return RegressionReport(float(np.abs(error).mean()), float(np.square(error).mean()), *correlations, len(a))


def correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Pearson's correlation; 0 if one side does not vary."""
    a, b = a - a.mean(), b - b.mean()
    spread = float(np.sqrt((a @ a) * (b @ b)))
    return round(float(a @ b) / spread, 15) if spread > 0 else 0.0


def mean_ranks(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rank of each number from 1; equal numbers have the mean of their ranks.

    >>> mean_ranks(np.array([5.0, 1.0, 5.0])).tolist()
    [2.5, 1.0, 2.5]
    """
    _, group, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[group]

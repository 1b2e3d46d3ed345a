"""Confidence intervals over seeds, and exponents of power laws.

Everything assumes independent samples with roughly normal errors. That holds for seeds of one experiment, but for the
points of a fitted curve only if the curve has the fitted form: the interval of a slope covers scatter, not curvature.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

LEVEL = 0.95  # of every interval
Numbers = Sequence[float | int]


@dataclass(frozen=True)
class Estimate:
    """A number with an interval of probability `LEVEL`, or the observed range."""

    value: float
    low: float
    high: float
    n: int  # samples

    def __str__(self) -> str:
        if self.n < 2 or self.low == self.high:
            return f"{self.value:.3g}"
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


@dataclass(frozen=True)
class PowerLaw:
    """y = factor * x ** exponent."""

    exponent: Estimate
    factor: float


def mean_interval(values: Numbers, level: float = LEVEL) -> Estimate:
    """Student's t interval of the mean, of probability `level`. A single value has an infinite interval.

    >>> print(mean_interval([1.0, 2.0, 3.0]))
    2 [-0.484, 4.48]
    """
    sample = np.asarray(values, dtype=float)
    n, mean = len(sample), float(sample.mean())
    if n < 2:
        return Estimate(mean, -math.inf, math.inf, n)
    half = t_quantile(0.5 + level / 2, n - 1) * float(sample.std(ddof=1)) / math.sqrt(n)
    return Estimate(mean, mean - half, mean + half, n)


def seed_range(values: Numbers) -> Estimate:
    """Median, minimum and maximum, for a few seeds, for which an interval says little.

    >>> print(seed_range([1.0, 9.0, 2.0]))
    2 [1, 9]
    """
    return Estimate(float(np.median(values)), float(min(values)), float(max(values)), len(values))


def power_law(x: Numbers, y: Numbers) -> PowerLaw:
    """Least squares on logarithms: the slope of log y against log x is the exponent. `ValueError` below three points.

    >>> round(power_law([1, 2, 4, 8], [3, 6, 12, 24]).exponent.value, 6)
    1.0
    """
    log_x, log_y = np.log(np.asarray(x, dtype=float)), np.log(np.asarray(y, dtype=float))
    n, spread = len(log_x), float(((log_x - log_x.mean()) ** 2).sum())
    if n < 3 or spread == 0:
        raise ValueError(f"a power law needs three points with different x, not {list(x)}")
    slope = float(((log_x - log_x.mean()) * (log_y - log_y.mean())).sum() / spread)
    intercept = float(log_y.mean() - slope * log_x.mean())
    residual = log_y - intercept - slope * log_x
    half = t_quantile(0.5 + LEVEL / 2, n - 2) * math.sqrt(float(residual @ residual) / (n - 2) / spread)
    return PowerLaw(Estimate(slope, slope - half, slope + half, n), math.exp(intercept))


def crossing(x: Numbers, first: Numbers, second: Numbers) -> float | None:
    """The x at which `first`, initially smaller, overtakes `second`, by log-log interpolation.

    None if it never does; the first x if it is larger from the start.

    >>> crossing([1, 4, 16], [1, 4, 16], [4, 4, 4])
    4.0
    """
    log_x, gap = np.log(np.asarray(x, dtype=float)), np.log(np.asarray(first)) - np.log(np.asarray(second))
    if gap[0] >= 0:
        return float(x[0])
    for i in range(1, len(gap)):
        if gap[i] >= 0:
            share = gap[i - 1] / (gap[i - 1] - gap[i])
            return float(np.exp(log_x[i - 1] + share * (log_x[i] - log_x[i - 1])))
    return None


def t_within(t: float, freedom: int) -> float:
    """P(|T| <= t) of Student's t with `freedom` degrees (Abramowitz and Stegun, 26.7.3 and 26.7.4).

    >>> round(t_within(2.0, 60), 2), round(t_within(12.706, 1), 2)
    (0.95, 0.95)
    """
    angle = math.atan2(t, math.sqrt(freedom))
    sin, cos = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = (cos, cos) if odd else (1.0, 1.0)
    for k in range(2 + odd, freedom - 1, 2):
        term *= cos * cos * (k - 1) / k
        total += term
    if not odd:
        return sin * total
    return 2 / math.pi * (angle + (sin * total if freedom > 1 else 0.0))


@cache
def t_quantile(p: float, freedom: int) -> float:
    """The value that Student's t stays below with probability `p` > 0.5.

    >>> round(t_quantile(0.975, 2), 3), round(t_quantile(0.975, 5), 3), round(t_quantile(0.975, 10), 3)
    (4.303, 2.571, 2.228)
    """
    low, high = 0.0, 1e4
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if t_within(middle, freedom) < 2 * p - 1 else (low, middle)
    return high

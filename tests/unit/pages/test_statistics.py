"""The study's statistics: what was planted is found, what was not is not, as often as promised."""

import math

import numpy as np
import pytest

from headwise.evaluate.pages.statistics import (
    crossing,
    mean_interval,
    power_law,
    seed_range,
    t_quantile,
    t_within,
)

DRAWS = 800


def rate(hits: list[bool]) -> float:
    return sum(hits) / len(hits)


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (7, 2.3646), (9, 2.2622), (30, 2.0423), (120, 1.9799)],
)
def test_quantiles_are_those_of_the_tables(freedom: int, quantile: float) -> None:
    assert t_quantile(0.975, freedom) == pytest.approx(quantile, abs=1e-4)
    assert t_within(quantile, freedom) == pytest.approx(0.95, abs=1e-5)


@pytest.mark.parametrize("n", [2, 3, 5, 20])
def test_interval_of_the_mean_holds_it_as_often_as_it_says(n: int) -> None:
    rng = np.random.default_rng(n)
    intervals = [mean_interval(rng.normal(3.0, 2.0, n).tolist()) for _ in range(DRAWS)]
    assert rate([i.low <= 3.0 <= i.high for i in intervals]) == pytest.approx(0.95, abs=0.025)


@pytest.mark.parametrize("exponent", [-0.4, 0.0, 1.0, 2.0])
def test_planted_exponent_is_in_its_interval(exponent: float) -> None:
    rng = np.random.default_rng(7)
    x = np.array([16, 32, 64, 128, 256, 512])
    fits = [power_law(x.tolist(), (3 * x**exponent * np.exp(rng.normal(0, 0.1, 6))).tolist()) for _ in range(DRAWS)]
    held = [fit.exponent.low <= exponent <= fit.exponent.high for fit in fits]
    assert rate(held) == pytest.approx(0.95, abs=0.025)
    assert np.mean([fit.exponent.value for fit in fits]) == pytest.approx(exponent, abs=0.005)
    assert np.mean([fit.factor for fit in fits]) == pytest.approx(3, rel=0.05)


@pytest.mark.parametrize("x", [[1, 2], [4, 4, 4]])
def test_power_law_refuses_what_has_no_slope(x: list[float]) -> None:
    with pytest.raises(ValueError, match="three points"):
        power_law(x, x)


def test_crossing_is_found_between_points_or_not_at_all() -> None:
    x = [1.0, 2.0, 4.0, 8.0]
    assert crossing(x, [1, 4, 16, 64], [3, 6, 12, 24]) == pytest.approx(3.0)  # x^2 = 3 x
    assert crossing(x, [1, 1, 1, 1], [2, 2, 2, 2]) is None
    assert crossing(x, [3, 3, 3, 3], [2, 2, 2, 2]) == 1.0


def test_few_draws_are_told_honestly() -> None:
    assert math.isinf(mean_interval([1.0]).high)
    assert str(mean_interval([1.0])) == "1"
    assert seed_range([3.0, 1.0]).value == 2.0

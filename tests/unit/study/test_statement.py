"""Verdicts follow from intervals alone, and intervals from seeds or problems."""

import math
from collections.abc import Sequence

import pytest

from headwise.evaluate.pages.statistics import Estimate
from headwise.lab.study.statement import (
    NoRows,
    NotMeasured,
    Row,
    Statement,
    exact,
    judge,
    over_problems,
    over_seeds,
    verdict,
)

INFINITE = math.inf


@pytest.mark.parametrize(
    ("low", "high", "above", "below", "expected"),
    [
        (1.0, 3.0, 0.5, INFINITE, "supported"),
        (1.0, 3.0, 1.0, INFINITE, "undecided"),
        (1.0, 3.0, 3.0, INFINITE, "refuted"),
        (1.0, 3.0, -INFINITE, 4.0, "supported"),
        (1.0, 3.0, -INFINITE, 1.0, "refuted"),
        (1.0, 3.0, 0.0, 4.0, "supported"),
        (1.0, 3.0, 0.0, 2.0, "undecided"),
        (-INFINITE, INFINITE, 0.0, INFINITE, "undecided"),
        (2.0, 2.0, 1.0, INFINITE, "supported"),
    ],
)
def test_verdicts(low: float, high: float, above: float, below: float, expected: str) -> None:
    assert verdict(Estimate(2.0, low, high, 3), above, below) == expected


def test_no_number_is_no_verdict() -> None:
    assert verdict(None, 0.0, INFINITE) == verdict(Estimate(math.nan, 0.0, 0.0, 1), -1.0, INFINITE) == "undecided"


def first(rows: Sequence[Row]) -> float:
    if "y" not in rows[0]:
        raise NoRows("no y")
    return rows[0]["y"]


def test_seeds_without_the_number_are_left_out() -> None:
    rows = [{"seed": 1, "y": 1.0}, {"seed": 2, "y": 3.0}, {"seed": 3}]
    estimate = over_seeds(first).of(rows)
    assert estimate is not None and (estimate.value, estimate.n) == (2.0, 2)
    assert over_seeds(first).of(rows[2:]) is None
    single = judge(Statement("s", "", "", over_seeds(first), above=0.0), rows[:1])
    assert single.verdict == "undecided" and single.as_json()["low"] is None


def test_what_was_left_out_of_the_study_is_open() -> None:
    def missing(rows: Sequence[Row]) -> float:
        raise NotMeasured("no such corpus")

    for kind in (exact, over_seeds, over_problems):
        statement = Statement("s", "", "", kind(missing), above=0.0)
        assert judge(statement, [{"seed": 1, "problem": 1}]).verdict == "open"
    assert judge(Statement("s", "", "", exact(first), above=0.0), []).verdict == "open"


def test_the_bootstrap_draws_problems() -> None:
    rows = [{"problem": i, "seed": seed, "y": float(i % 2)} for i in range(100) for seed in (1, 2)]
    estimate = over_problems(lambda rows: sum(row["y"] for row in rows) / len(rows)).of(rows)
    assert estimate is not None and (estimate.value, estimate.n) == (0.5, 100)
    # The standard error of a share of 100 is 0.05; had rows been drawn instead, it would be 0.035.
    assert estimate.high - estimate.low == pytest.approx(4 * 0.05, rel=0.1)

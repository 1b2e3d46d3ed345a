"""Verdicts follow from intervals alone, and intervals from seeds or problems."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.evaluate.pages.statistics import Estimate
from headwise.lab.study.statement import (
    PRIMARY,
    AtFloor,
    Looks,
    NoRows,
    NotMeasured,
    Row,
    Statement,
    exact,
    judge,
    over_seeds,
    verdict,
)

INFINITE = math.inf
LOOKS = Looks(2, 4)


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
    estimate = over_seeds(first).of(rows, 0.95)
    assert estimate is not None and (estimate.value, estimate.n) == (2.0, 2)
    assert over_seeds(first).of(rows[2:], 0.95) is None
    single = judge(Statement("s", "", "", over_seeds(first), above=0.0), rows[:1], LOOKS)
    assert single.verdict == "undecided" and single.as_json()["low"] is None


def test_what_was_left_out_is_not_measured_and_what_learned_nothing_not_comparable() -> None:
    def raising(error: type[NoRows]) -> Callable[[Sequence[Row]], float]:
        def value(rows: Sequence[Row]) -> float:
            raise error("no")

        return value

    for kind in (exact, over_seeds):
        for error, expected in ((NotMeasured, "not measured yet"), (AtFloor, "not comparable")):
            result = judge(Statement("s", "", "", kind(raising(error)), above=0.0), [{"seed": 1}], LOOKS)
            assert result.verdict == expected
    assert judge(Statement("s", "", "", exact(first), above=0.0), [], LOOKS).verdict == "not measured yet"


@given(st.integers(1, 20), st.integers(0, 20), st.booleans())
def test_all_looks_together_spend_the_permitted_error(begin: int, more: int, primary: bool) -> None:
    looks = Looks(begin, begin + more)
    spent = sum(looks.error(seeds, primary) for seeds in range(begin, begin + more + 1))
    assert spent == pytest.approx(0.05 / (PRIMARY if primary else 1))


def test_looking_again_and_again_seldom_misses_the_effect() -> None:
    """Of true statements on the boundary, at most one in twenty gets a verdict at any of its looks."""
    rng, looks, missed = np.random.default_rng(1), Looks(3, 6), 0
    statement = Statement("s", "", "", over_seeds(first), above=0.0)
    for _ in range(1000):
        rows = [{"seed": seed, "y": float(rng.normal())} for seed in range(6)]
        found = {judge(statement, rows[:n], looks).verdict for n in range(3, 7)}
        missed += found != {"undecided"}
    assert missed <= 60  # 50 are expected at most; their deviation is 7


def test_sentences_are_plain() -> None:
    rows = [{"seed": seed, "y": 1.0 + seed} for seed in (1, 2, 3)]
    result = judge(Statement("s", "It helps.", "gain in BLEU", over_seeds(first), above=0.0), rows, Looks(3, 3))
    assert (
        result.sentence
        == "Yes: It helps. Measured: 3, with 3 seeds between 0.516 and 5.48; needed: above 0 (gain in BLEU)."
    )

"""Learning rates at literal steps."""

from dataclasses import replace

import pytest

from headwise.config.training import TrainConfig
from headwise.core.optimizer import is_nearly_constant, learning_rate, peak_learning_rate

PAPER = TrainConfig()
SHORT = TrainConfig(learning_rate=0.004, warmup_steps=10, max_steps=110)


@pytest.mark.parametrize("step", [1, 2, 1000, 3999, 4000, 4001, 16_000, 100_000])
def test_the_default_is_equation_3(step: int) -> None:
    expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
    assert learning_rate(step, peak_learning_rate(PAPER, d_model=512), PAPER) == pytest.approx(expected, rel=1e-12)


def test_learning_rate_is_the_peak() -> None:
    assert peak_learning_rate(SHORT, d_model=512) == 0.004
    rates = [learning_rate(step, 0.004, SHORT) for step in range(1, 111)]
    assert max(rates) == rates[9] == 0.004
    assert rates[0] == pytest.approx(0.0004)


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_cosine_and_linear_end_at_zero(schedule: str) -> None:
    train = replace(SHORT, schedule=schedule)
    rates = [learning_rate(step, 0.004, train) for step in range(10, 111)]
    assert rates[0] == pytest.approx(0.004)
    assert rates[50] == pytest.approx(0.002)  # both are half the peak half way down
    assert rates[100] == pytest.approx(0.0, abs=1e-18)
    assert rates == sorted(rates, reverse=True)
    assert learning_rate(500, 0.004, train) == 0.0  # not negative, not up again


def test_cosine_is_not_linear() -> None:
    quarter = learning_rate(35, 1.0, replace(SHORT, schedule="cosine"))
    assert quarter == pytest.approx(0.5 + 0.5**1.5)
    assert learning_rate(35, 1.0, replace(SHORT, schedule="linear")) == pytest.approx(0.75)


def test_constant_stays_after_the_warm_up() -> None:
    train = replace(SHORT, schedule="constant")
    assert [learning_rate(step, 1.0, train) for step in (5, 10, 11, 110)] == [0.5, 1.0, 1.0, 1.0]


def test_the_rates_of_the_papers_averages_are_nearly_constant() -> None:
    """Section 6.1: the last 5 checkpoints of base, the last 20 of big, written every 1,500 updates."""
    assert is_nearly_constant(94_000, 100_000, PAPER)
    assert is_nearly_constant(271_500, 300_000, replace(PAPER, max_steps=300_000))
    assert not is_nearly_constant(6400, 10_000, PAPER)  # exactly 0.8
    assert is_nearly_constant(6401, 10_000, PAPER)


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_a_rate_that_ends_at_zero_is_not(schedule: str) -> None:
    train = replace(SHORT, schedule=schedule)
    assert not is_nearly_constant(109, 110, train)
    assert not is_nearly_constant(110, 110, train)
    assert is_nearly_constant(110, 110, replace(SHORT, schedule="constant"))

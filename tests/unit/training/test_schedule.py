"""Learning rates at literal steps."""

from dataclasses import replace

import pytest

from headwise.config.training import TrainConfig
from headwise.training.schedule import learning_rate, peak_learning_rate

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

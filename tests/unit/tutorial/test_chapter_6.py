"""Typical wrong answers to the exercises of chapter 6, and answers that are rounded."""

from typing import Any

import numpy as np
import pytest

from headwise.config.training import TrainConfig
from headwise.core.optimizer import peak_learning_rate
from headwise.evaluate.bleu import corpus_scores
from headwise.lab.tutorial import check


@pytest.mark.parametrize(
    ("number", "answer", "hint"),
    [
        ("6.1", (0.0014, 0.000349), "Update 1000 belongs to the warm-up"),
        ("6.1", (0.000175, 0.0028), "comes after the warm-up"),
        ("6.1", (0.00395, 0.0079), "The factor d_model"),
        ("6.1", (0.0, 0.0), "Two numbers"),
        ("6.1", 0.000175, "Two numbers"),
        ("6.2", (0.9, 0.025), "all tokens share it"),
        ("6.2", (0.9, 0.02), "sum to one"),
        ("6.2", (0.98, 0.02), "Two numbers"),
        ("6.3", 0.7788, "from 0 to 100"),
        ("6.3", 80, "Use the exponential"),
        ("6.3", 122.14, "the output's length c = 8"),
        ("6.3", 100, "100 times the brevity penalty"),
    ],
)
def test_a_wrong_answer_gets_its_hint(number: str, answer: Any, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert not check(number, answer)
    assert hint in capsys.readouterr().out


def test_bleu_is_that_of_the_library() -> None:
    reference = "one two three four five six seven eight nine ten"
    output = "one two three four five six seven eight"
    assert check("6.3", corpus_scores([output], [reference], ["BLEU"])["BLEU"].score)


@pytest.mark.parametrize(
    ("number", "answer"),
    [
        ("6.1", [0.000175, 0.000349]),
        ("6.1", np.array([0.000175, 0.000349])),
        ("6.2", (0.92, 0.02)),
        ("6.3", 77.9),
    ],
)
def test_rounded_answers_are_right(number: str, answer: Any) -> None:
    assert check(number, answer)


def test_without_warmup_equation_3_has_a_peak_ten_times_as_high() -> None:
    """Why the experiment of the chapter does not compare `warmup_steps` of 100 and 1."""
    peaks = [peak_learning_rate(TrainConfig(warmup_steps=steps), 64) for steps in (100, 1)]
    assert peaks[1] / peaks[0] == pytest.approx(10)

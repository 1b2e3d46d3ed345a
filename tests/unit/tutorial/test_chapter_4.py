"""Typical wrong answers to the exercises of chapter 4."""

from typing import Any

import pytest

from headwise.lab.tutorial import check


@pytest.mark.parametrize(
    ("number", "answer", "hint"),
    [
        ("4.1", [-1.162, 0.613, 0.775, 3.324], "divide by d = 4"),  # torch's unbiased standard deviation
        ("4.1", [-0.6, 0.8, 0.4, 2.2], "divided by the variance"),
        ("4.1", [-1.342, -0.447, 0.447, 1.342], "Multiply by the gain"),
        ("4.1", [-3.0, -1.0, 1.0, 3.0], "The mean is 4"),
        ("4.1", [-1.342, 0.553, 0.894, 3.690], "The mean is 4"),
        ("4.1", [-1.335, 0.553, 0.894, 3.683], "The mean is 4"),
        ("4.2", 4_718_592, "Add the two biases"),
        ("4.2", 2_362_368, "the first of two linear layers"),
        ("4.2", 4_722_433, "Two matrices"),
        ("4.3", lambda x, f, norm: norm(x + f(x)), "This is post-norm"),
        ("4.3", lambda x, f, norm: x + norm(f(x)), "normalise the output of f"),
        ("4.3", lambda x, f, norm: f(norm(x)), "residual connection is missing"),
        ("4.3", lambda x, f, norm: norm(x) + f(norm(x)), "The stream itself stays"),
        ("4.3", lambda x, f, norm: x + f(x), "Normalise x"),
        ("4.3", lambda x: x, "Your answer raises"),
    ],
)
def test_a_wrong_answer_gets_its_hint(number: str, answer: Any, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert not check(number, answer)
    assert hint in capsys.readouterr().out


def test_three_decimals_are_enough() -> None:
    assert check("4.1", [-1.342, 0.553, 0.894, 3.683])

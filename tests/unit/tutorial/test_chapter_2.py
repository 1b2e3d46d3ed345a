"""Typical wrong answers to the exercises of chapter 2."""

from math import pi
from typing import Any

import pytest
import torch

from headwise.lab.tutorial import check


def shift(d_model: int, k: int, sign: int = 1, halved: bool = False) -> torch.Tensor:
    """The rotation, or with another sign or order of dimensions a wrong one."""
    matrix = torch.zeros(d_model, d_model)
    for pair in range(d_model // 2):
        rows = [pair, pair + d_model // 2] if halved else [2 * pair, 2 * pair + 1]
        angle = torch.tensor(sign * k / 10000 ** (2 * pair / d_model))
        matrix[rows[0], rows[0]] = matrix[rows[1], rows[1]] = angle.cos()
        matrix[rows[0], rows[1]], matrix[rows[1], rows[0]] = angle.sin(), -angle.sin()
    return matrix


def test_the_rotation_is_right() -> None:
    assert check("2.1", shift)


@pytest.mark.parametrize(
    ("number", "answer", "hint"),
    [
        ("2.1", lambda d_model, k: shift(d_model, k, sign=-1), "back by k positions"),
        ("2.1", lambda d_model, k: shift(d_model, k, halved=True), "rotated on its own"),
        ("2.1", lambda d_model, k: torch.eye(d_model), "rotated on its own"),
        ("2.1", lambda d_model, k: shift(d_model, 1), "rotated on its own"),
        ("2.1", lambda d_model, k: torch.eye(2), "8 rows and 8 columns"),
        ("2.2", [1, 100, 10000 ** (510 / 512)], "2 pi radians"),
        ("2.2", [2 * pi, 2 * pi * 10000, 2 * pi * 10000], "When has it grown by 2 pi"),
        ("2.2", 2 * pi, "three numbers"),
        ("2.3", 37_000 * 512, "one table"),
        ("2.3", 3 * 37_000 * 512, "a row of d_model numbers"),
    ],
)
def test_a_wrong_answer_gets_its_hint(number: str, answer: Any, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert not check(number, answer)
    assert hint in capsys.readouterr().out

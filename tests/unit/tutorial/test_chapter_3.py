"""Typical wrong answers to the exercises of chapter 3."""

from typing import Any

import pytest
import torch

from headwise.lab.tutorial import check


def parts(attention: Any, heads: Any) -> Any:
    """What every head adds to the output."""
    return heads @ attention.o_proj.weight.unflatten(1, (attention.n_heads, -1)).permute(1, 2, 0)


def mask(lengths: Any, size: int) -> Any:
    return (torch.arange(size) < lengths[:, None])[:, None, None, :].expand(-1, 1, size, -1)


def square(size: int) -> Any:
    return torch.ones(size, size, dtype=torch.bool)


@pytest.mark.parametrize(
    ("number", "answer", "hint"),
    [
        ("3.1", lambda attention, heads: parts(attention, heads) + attention.o_proj.bias, "added once"),
        ("3.1", lambda attention, heads: parts(attention, heads).sum(1), "of every head"),
        ("3.1", lambda attention, heads: parts(attention, heads) + attention.o_proj.bias / 4, "without the bias"),
        ("3.1", lambda attention, heads: parts(attention, heads.flip(1)), "its own d_v columns"),
        ("3.1", lambda attention, heads: heads @ attention.o_proj.weight, "Your answer raises"),
        ("3.2", (64, 8), "64 is the variance"),
        ("3.2", (64, 1), "64 is the variance"),
        ("3.2", (8, 8), "Variances"),
        ("3.2", 8, "two numbers"),
        ("3.3", mask, "not to later ones"),
        ("3.3", lambda lengths, size: ~(mask(lengths, size) & square(size).tril()), "the other way round"),
        ("3.3", lambda lengths, size: mask(lengths, size) & square(size).triu(), "not to later ones"),
        ("3.3", lambda lengths, size: square(size).tril().expand(3, 1, -1, -1), "is padding"),
        ("3.3", lambda n, size: mask(n, size) & mask(n, size).mT & square(size).tril(), "padded queries"),
        ("3.3", lambda lengths, size: square(size).tril(), "Its shape is"),
        ("3.3", lambda lengths, size: mask(lengths, size).float(), "booleans"),
    ],
)
def test_a_wrong_answer_gets_its_hint(number: str, answer: Any, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert not check(number, answer)
    assert hint in capsys.readouterr().out

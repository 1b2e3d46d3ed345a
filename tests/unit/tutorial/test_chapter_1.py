"""Typical wrong answers to the exercises of chapter 1."""

from typing import Any

import pytest
import torch

from headwise.lab.tutorial import check


def gradients(cell: Any, inputs: Any) -> Any:
    inputs = inputs.clone().requires_grad_()
    return torch.autograd.grad(cell(inputs)[0][:, -1].sum(), inputs)[0]


@pytest.mark.parametrize(
    ("number", "answer", "hint"),
    [
        ("1.1", lambda cell, x, distance: gradients(cell, x)[:, distance].norm(), "which index has distance d"),
        ("1.1", lambda cell, x, distance: gradients(cell, x)[:, -distance].norm(), "which index has distance d"),
        ("1.1", lambda cell, x, distance: gradients(cell, x).norm(), "the norm over the batch"),
        ("1.1", lambda cell, x, distance: gradients(cell, x)[:, -33].norm(), "wrong at distance 5"),
        ("1.1", lambda cell, x, distance: cell(x, distance), "Your answer raises"),
        ("1.2", {"recurrent": (100, 100), "convolution": (1, 1), "attention": (1, 1)}, "again at convolution"),
        ("1.2", {"recurrent": (1, 100), "convolution": (1, 50), "attention": (1, 1)}, "again at recurrent"),
        ("1.2", {"recurrent": (100, 99), "convolution": (1, 50), "attention": (1, 1)}, "the first state takes one"),
        ("1.2", {"recurrent": (99, 100), "convolution": (1, 50), "attention": (1, 1)}, "the first state takes one"),
        ("1.2", {"recurrent": (100, 100), "convolution": (1, 50), "attention": (100, 1)}, "again at attention"),
        ("1.2", {"attention": (1, 1)}, "a dict with the keys"),
        ("1.3", lambda scores, states: scores @ states, "sum to one"),
        ("1.3", lambda scores, states: scores.softmax(0), "as wide as a state"),
        ("1.3", lambda scores, states: states.mean(0), "the weighted sum"),
    ],
)
def test_a_wrong_answer_gets_its_hint(number: str, answer: Any, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert not check(number, answer)
    assert hint in capsys.readouterr().out


def test_a_gru_has_three_matrices_where_an_lstm_has_four() -> None:
    assert [kind(1, 1).get_parameter("weight_hh_l0").numel() for kind in (torch.nn.GRU, torch.nn.LSTM)] == [3, 4]

"""Operations are counted as the formulas of the layers say."""

import pytest
import torch
from torch import nn

from headwise.lab.study.graph import count_chain, longest_chain, shortest_path


def test_the_longest_and_the_shortest_way() -> None:
    x, y = (torch.ones(2, requires_grad=True) for _ in range(2))
    result = (x.exp().sin() + x) * y
    assert longest_chain(result) == 4  # exp, sin, add, mul
    assert shortest_path(result, x) == 2  # add, mul
    assert shortest_path(result, y) == 1
    assert shortest_path(x.exp(), y) is None


def test_moving_numbers_is_no_operation() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    moved = torch.cat([x.transpose(0, 1).reshape(6).unsqueeze(0)[:, 1:4], torch.stack([x[0]])]).clone()
    assert longest_chain(moved) == 0
    assert shortest_path(moved, x) == 0


@pytest.mark.parametrize(("cell", "per_step"), [(nn.RNN, 3), (nn.LSTM, 7), (nn.GRU, 9)])
def test_recurrence_is_counted_step_by_step(cell: type[nn.RNNBase], per_step: int) -> None:
    """A step of the plain cell is a product, a sum and a tanh; gates add to that."""
    network = cell(4, 4, batch_first=True)  # pyright: ignore[reportCallIssue]
    chains = [count_chain(lambda n=n: network(torch.ones(1, n, 4))[0]) for n in (5, 6, 7)]
    assert chains[2] - chains[1] == chains[1] - chains[0] == per_step


def test_a_long_graph_needs_no_recursion() -> None:
    x = state = torch.ones(1, requires_grad=True)
    for _ in range(5000):
        state = state.sin()
    assert longest_chain(state) == shortest_path(state, x) == 5000

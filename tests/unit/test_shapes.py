"""That types and shapes are checked while tests run (`tests/shapes.py`), and in which calls."""

from collections.abc import Callable

import pytest
import shapes
import torch

from headwise.network.positions import sequential_positions

Function = Callable[[int], None]


def test_the_package_is_checked() -> None:
    with pytest.raises(Exception, match=r"Shaped|Int\[Tensor"):
        sequential_positions(torch.ones(2, 3))


def test_the_first_calls_of_a_test_and_some_more_are_checked() -> None:
    checked: list[int] = []

    def noting(function: Function) -> Function:
        return lambda call: checked.append(call)

    noted = shapes.sometimes(lambda: noting)()(lambda call: None)
    for call in range(1, 301):
        noted(call)
    first = [*range(1, shapes.CALLS + 1)]
    assert checked == [*first, 16, 256]
    shapes.next_test()
    noted(1)
    assert checked == [*first, 16, 256, 1]

"""That types and shapes are checked while tests run (`tests/shapes.py`), and in which calls."""

from collections.abc import Callable
from dataclasses import dataclass

import jaxtyping
import pytest
import shapes
import torch
from beartype import beartype

from headwise.core.positions import sequential_positions

Function = Callable[[int], None]


@pytest.fixture(autouse=True)
def this_test_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "SHARE", 1)
    shapes.next_test("this one")


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
    shapes.next_test("another one")
    noted(1)
    assert checked == [*first, 16, 256, 1]


def test_a_part_of_the_tests_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "SHARE", 4)
    checked: list[str] = []
    noted = shapes.sometimes(lambda: lambda function: lambda name: checked.append(name))()(lambda name: None)
    names = [f"test {number}" for number in range(1000)]
    for name in names * 2:
        shapes.next_test(name)
        noted(name)
    assert 200 < len(set(checked)) < 300 and checked == checked[: len(checked) // 2] * 2


def test_initialisers_methods_and_properties_are_checked() -> None:
    @dataclass
    class Given:
        one: int

        @property
        def wrong(self) -> str:
            return self.one  # type: ignore[return-value]

    made = shapes.sometimes(jaxtyping._decorator.jaxtyped)(typechecker=beartype)
    Given.wrong = made(Given.wrong)  # type: ignore[assignment, method-assign]
    checked = made(Given)
    with pytest.raises(Exception, match="one"):
        checked("text")
    with pytest.raises(Exception, match="wrong"):
        print(checked(1).wrong)

"""An exercise of the tutorial: the question, the check of an answer, and the solution."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Exercise:
    """One exercise. Chapter n defines its exercises in `chapter_n.py`, as the table `EXERCISES` by number ("1.1")."""

    question: str  # in one or two sentences; the chapter may say more
    examine: Callable[[Any], str]  # what is wrong with an answer, as a hint; "" if it is right
    solution: str  # Python code that defines `answer`
    explanation: str


def agrees(answer: Any, expected: Any, tolerance: float = 1e-4, scale: Any = None) -> bool:
    """Whether a number or an array is the expected one, up to rounding.

    `tolerance` is relative to `scale`: a number, or one for each expected number. By default it is the largest expected
    number, or one if that is less.

    >>> agrees(2, 2.0), agrees([1.0, 2.1], [1.0, 2.0]), agrees("two", 2.0), agrees([2.0], 2.0)
    (True, False, False, False)
    >>> agrees([0.0, 5.0], [0.0001, 5.0]), agrees([0.0, 5.0], [0.0001, 5.0], scale=[0.0001, 5.0])
    (True, False)
    """
    try:
        given = torch.as_tensor(answer, dtype=torch.float64).detach()
    except (TypeError, ValueError, RuntimeError):
        return False
    right = torch.as_tensor(expected, dtype=torch.float64).detach()
    unit = max(1.0, float(right.abs().max())) if scale is None else torch.as_tensor(scale, dtype=torch.float64)
    return given.shape == right.shape and bool(((given - right).abs() <= tolerance * unit).all())

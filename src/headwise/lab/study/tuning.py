"""The learning rate of each network: a range is extended until the best rate lies inside.

Tuning runs have the first seed and a quarter of the updates. Test data play no part.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

FACTOR = 3.0  # between neighbouring learning rates
EXTENSIONS = 3  # at most, beyond the three rates that every network tries
SHORTER = 4  # times fewer updates than the measurement
BUDGETS = ("steps", "first")  # fields of a condition that count updates


@dataclass(frozen=True)
class Tuning:
    """The conditions tried for one network, those still to be measured, and the choice when there are none."""

    tried: list[Any]
    waiting: list[Any]
    chosen: Any = None
    at_edge: bool = False  # the best rate is the lowest or the highest that was tried


def tune(condition: Any, validation: Callable[[Any], float | None], extensions: int = EXTENSIONS) -> Tuning:
    """Select the learning rate of a condition by the `validation` of tuning runs, None for one not measured yet.

    A condition without a learning rate is its own choice. Of equally good rates the one nearest to its own wins.
    """
    if not getattr(condition, "rate", 0.0):
        return Tuning([], [], condition)
    low, high = -1, 1
    while True:
        powers = range(low, high + 1)
        tried = [shortened(condition, FACTOR**power) for power in powers]
        found = [validation(one) for one in tried]
        scores = [-math.inf if score is None or math.isnan(score) else score for score in found]
        waiting = [one for one, score in zip(tried, found, strict=True) if score is None]
        if waiting:
            return Tuning(tried, waiting)
        best = max(powers, key=lambda power: (scores[power - low], -abs(power)))
        at_edge = best in (low, high)
        if not at_edge or len(tried) == 3 + extensions:
            return Tuning(tried, [], replace(condition, rate=condition.rate * FACTOR**best), at_edge)
        low, high = (low - 1, high) if best == low else (low, high + 1)


def shortened(condition: Any, factor: float) -> Any:
    """The condition of a tuning run with `factor` times the learning rate."""
    budgets = {name: max(1, getattr(condition, name) // SHORTER) for name in BUDGETS if hasattr(condition, name)}
    return replace(condition, rate=condition.rate * factor, **budgets)

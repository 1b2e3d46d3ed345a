"""The learning rate of each network: a range is extended until the best rate lies inside.

Tuning runs have the first seed and a quarter of the updates. If two rates are close after these, both are trained in
full with the first seed. Test data play no part.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

FACTOR = 3.0  # between neighbouring learning rates
EXTENSIONS = 3  # at most, beyond the three rates that every network tries
SHORTER = 4  # times fewer updates than the measurement
CLOSE = 0.15  # of what the best rate leads the third by: a second rate that is so close is trained in full, too
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
    Without `extensions` only the three first rates are tried.
    """
    if not getattr(condition, "rate", 0.0):
        return Tuning([], [], condition)
    low, high = -1, 1
    while True:
        tried = {power: shortened(condition, FACTOR**power) for power in range(low, high + 1)}
        scores, waiting = _scores(tried, validation)
        if waiting:
            return Tuning([*tried.values()], waiting)
        best, second, third = sorted(tried, key=lambda power: (-scores[power], abs(power)))[:3]
        lead, range_ = scores[best] - scores[second], scores[best] - scores[third]
        candidates = (best, second) if extensions and 0 < lead <= CLOSE * range_ else (best,)
        outer = [power for power in candidates if power in (low, high)]
        if not outer or len(tried) == 3 + extensions:
            break
        low, high = (low - 1, high) if outer[0] == low else (low, high + 1)
    full = {power: replace(condition, rate=condition.rate * FACTOR**power) for power in candidates}
    runs = [*tried.values()]
    if len(candidates) > 1:
        scores, waiting = _scores(full, validation)
        if waiting:
            return Tuning([*runs, *full.values()], waiting)
        best, second = (second, best) if scores[second] > scores[best] else (best, second)
        runs.append(full[second])
    return Tuning(runs, [], full[best], best in (low, high))


def _scores(
    conditions: dict[int, Any], validation: Callable[[Any], float | None]
) -> tuple[dict[int, float], list[Any]]:
    """The validation of each condition, the lowest if it is not a number, and the conditions that have none yet."""
    found = {power: validation(one) for power, one in conditions.items()}
    waiting = [one for power, one in conditions.items() if found[power] is None]
    numbers = {power: -math.inf if score is None or math.isnan(score) else score for power, score in found.items()}
    return numbers, waiting


def shortened(condition: Any, factor: float) -> Any:
    """The condition of a tuning run with `factor` times the learning rate."""
    budgets = {name: max(1, getattr(condition, name) // SHORTER) for name in BUDGETS if hasattr(condition, name)}
    return replace(condition, rate=condition.rate * factor, **budgets)

"""Contenders take turns, so that a slow moment of the machine affects all of them; ratios are computed turn by turn.

In every turn each contender does the same work once, in a rotating order. Figures are medians over the turns of the
ratio *within* a turn, with quartiles, so other load cancels if it lasts longer than a turn. Warm-up turns (imports,
allocation, caches) are not counted.

Not here: the contenders (`training_contenders.py`, `decoders.py`) and their processes (`workers.py`).
"""

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of some numbers."""

    low: float
    median: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}-{self.high:.2f})"


def spread(values: Sequence[float]) -> Spread:
    """Median and quartiles, interpolated.

    >>> spread([4.0, 1.0, 2.0, 3.0, 5.0])
    Spread(low=2.0, median=3.0, high=4.0)
    >>> spread([2.0])
    Spread(low=2.0, median=2.0, high=2.0)
    """
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    return Spread(*statistics.quantiles(values, n=4, method="inclusive"))


def order(names: Sequence[str], turn: int) -> list[str]:
    """The order of a turn: each order forwards and then backwards, rotated by one every other turn.

    >>> order(["a", "b", "c"], 0), order(["a", "b", "c"], 1), order(["a", "b", "c"], 2)
    (['a', 'b', 'c'], ['c', 'b', 'a'], ['b', 'c', 'a'])
    """
    start = turn // 2 % len(names)
    rotated = [*names[start:], *names[:start]]
    return rotated[::-1] if turn % 2 else rotated


def take_turns(
    contenders: Mapping[str, Callable[[int], float]], turns: int, warm_up: int = 2, show: bool = True
) -> dict[str, list[float]]:
    """Seconds of each contender in each counted turn.

    A contender is a function from the number of the turn, which selects the work, to its seconds. Warm-up turns have
    the numbers -warm_up ... -1.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(-warm_up, turns):
        for name in order(list(contenders), turn):
            took = contenders[name](turn)
            if turn >= 0:
                seconds[name].append(took)
        if show:
            print(f"\r  turn {max(turn + 1, 0)} of {turns}", end="", file=sys.stderr, flush=True)
    if show:
        print(file=sys.stderr)
    return seconds


def speed_ratio(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """How many times faster `ours` is, turn by turn; both are seconds for the same work.

    >>> speed_ratio([1.0, 1.0, 2.0], [2.0, 2.0, 4.0]).median
    2.0
    """
    return spread([their / our for our, their in zip(ours, theirs, strict=True)])


def fastest(seconds: Mapping[str, Sequence[float]], names: Sequence[str]) -> str:
    """The contender among `names` with the smallest median time.

    >>> fastest({"a": [1, 2, 9], "b": [3, 3, 3]}, ["a", "b"])
    'a'
    """
    return min(names, key=lambda name: statistics.median(seconds[name]))

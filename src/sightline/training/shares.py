"""A validation in two steps, so that ranks can share it: what is said of each item, and the figures of all that."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

Mine = Callable[[Iterable[Any]], Iterable[Any]]  # those of some items that are this process's; `iter` = all
Said = dict[str, list[Any]]  # by name, an entry for each item, in their order: what JSON can say


@dataclass(frozen=True)
class Validation:
    """Judges a network as it is then: `said` looks at the items that it is left, `figures` takes what is said of all.

    For each name `said` has as many entries as `mine` has left of one of the sequences that it was given.
    """

    said: Callable[[Mine], Said]
    figures: Callable[[Said], dict[str, float]]  # "loss" and others


def mean(said: Said, name: str, targets: str) -> float:
    """The sum of what is said over how many there are."""
    return sum(said[name]) / max(1, sum(said[targets]))

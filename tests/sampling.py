"""`make test` runs a sample of large products of cases, the same in every run; `make test-all` runs all of them.

A test with several parameters that vary on their own is a product: of its cases those are kept in which some parameter
has a value for the first time, and others up to `MOST`. A test with one parameter is a table, and keeps every row,
unless it is marked `few(N)`: its rows do the same work for another family or task, and N of them are kept.
"""

import os
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import pytest

ALL = os.environ.get("HEADWISE_TESTS") == "all"
MOST = 10  # cases of a product, unless more are needed for every value of every parameter
One = TypeVar("One")


def some(cases: Iterable[One], most: int, all_of_them: bool = ALL, seed: str | int = 0) -> list[One]:
    """At most this number of the cases, in their order; each call with the same cases and seed returns the same.

    >>> some(range(100), 5, False), some("abc", 5, False), len(some(range(100), 5, True))
    ([5, 33, 49, 53, 97], ['a', 'b', 'c'], 100)
    """
    given = list(cases)
    if all_of_them or len(given) <= most:
        return given
    return [given[i] for i in sorted(random.Random(seed).sample(range(len(given)), most))]


def sampled(cases: Sequence[dict[str, Any]], most: int = MOST) -> list[int]:
    """The positions of the cases of a product that are kept. A case has a value for each of its parameters.

    >>> sampled([{"a": i, "b": j} for i in range(5) for j in range(2)], 5)
    [0, 2, 4, 6, 9]
    """
    order = random.Random(0).sample(range(len(cases)), len(cases))
    seen: dict[str, set[Any]] = defaultdict(set)
    first, rest = [], []
    for position in order:
        new = [name for name, value in cases[position].items() if value not in seen[name]]
        (first if new else rest).append(position)
        for name, value in cases[position].items():
            seen[name].add(value)
    return sorted(first + rest[: max(0, most - len(first))])


def axes(cases: Sequence[dict[str, Any]]) -> list[str]:
    """The parameters that vary on their own: of those that always change together, one.

    >>> axes([{"a": i, "b": i, "c": j} for i in range(3) for j in range(2)])
    ['a', 'c']
    """
    found: list[str] = []
    columns: set[tuple[Any, ...]] = set()
    for name in cases[0]:
        column = tuple(case.get(name) for case in cases)
        if len(set(column)) > 1 and column not in columns:
            columns.add(column)
            found.append(name)
    return found


def _comparable(values: dict[str, Any]) -> dict[str, Any]:
    """The same values, or numbers for those that cannot be in a set."""
    found = dict(values)
    for name, value in values.items():
        try:
            hash(value)
        except TypeError:
            found[name] = id(value)
    return found


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect cases of products, unless a test is named on the command line with its parameters."""
    if ALL or any("[" in argument for argument in config.args):
        return
    products: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if getattr(item, "callspec", None):
            products[item.nodeid.partition("[")[0]].append(item)
    left_out: set[pytest.Item] = set()
    for name, cases in products.items():
        values = [_comparable(case.callspec.params) for case in cases]  # type: ignore[attr-defined]
        varying = axes(values)
        if few := cases[0].get_closest_marker("few"):
            left_out |= set(cases) - set(some(cases, few.args[0], seed=name))  # each test has others
        elif len(varying) > 1:
            kept = sampled([{name: one.get(name) for name in varying} for one in values])
            left_out |= set(cases) - {cases[i] for i in kept}
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]

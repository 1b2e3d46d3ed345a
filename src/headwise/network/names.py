"""Names of parameters in files that were written before there was one network for all families. Needs no torch."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import TypeVar

Value = TypeVar("Value")
OLDER = {
    r"positions\.table$": "positions.table.weight",
    r"positions\.positions\.table": "positions.table",
    r"^output\.(weight|bias)$": r"head.output.\1",
}


class Renamed(Mapping[str, Value]):
    """Values under other names, each taken from those it is one of when it is asked for."""

    def __init__(self, values: Mapping[str, Value], names: Mapping[str, str]) -> None:
        self._values, self._names = values, names

    def __getitem__(self, name: str) -> Value:
        return self._values[self._names[name]]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def todays_names(tensors: Mapping[str, Value], own: Collection[str]) -> dict[str, Value]:
    """`tensors` under the names that a network with parameters `own` has for them today."""
    return {name if name in own else _todays_name(name, own): value for name, value in tensors.items()}


def _todays_name(name: str, own: Collection[str]) -> str:
    for older, today in OLDER.items():
        renamed = re.sub(older, today, name)
        if renamed in own:
            return renamed
    return name

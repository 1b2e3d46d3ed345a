"""Old names of parameters in files from before all families shared one network. Needs no torch."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import TypeVar

Value = TypeVar("Value")
RENAMED = {
    r"positions\.table$": "positions.table.weight",
    r"positions\.positions\.table": "positions.table",
    r"^output\.(weight|bias)$": r"head.output.\1",
}


class RenamedMapping(Mapping[str, Value]):
    """A lazy view of `values` under new names; `names` maps each new name to the old one."""

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


def current_names(tensors: Mapping[str, Value], own: Collection[str]) -> dict[str, Value]:
    """`tensors` under their current names in a network with parameters `own`."""
    return {name if name in own else _current_name(name, own): value for name, value in tensors.items()}


def _current_name(name: str, own: Collection[str]) -> str:
    for old, new in RENAMED.items():
        renamed = re.sub(old, new, name)
        if renamed in own:
            return renamed
    return name

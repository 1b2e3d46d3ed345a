"""Old names of parameters in files from before all families shared one network. Needs no torch."""

import re
from collections.abc import Collection, Mapping
from typing import TypeVar

Value = TypeVar("Value")
RENAMED = {
    r"positions\.table$": "positions.table.weight",
    r"positions\.positions\.table": "positions.table",
    r"^output\.(weight|bias)$": r"head.output.\1",
}


def current_names(tensors: Mapping[str, Value], own: Collection[str]) -> dict[str, Value]:
    """`tensors` under their current names in a network with parameters `own`."""
    return {name if name in own else _current_name(name, own): value for name, value in tensors.items()}


def _current_name(name: str, own: Collection[str]) -> str:
    for old, new in RENAMED.items():
        renamed = re.sub(old, new, name)
        if renamed in own:
            return renamed
    return name

"""Names of parameters in files that were written before there was one network for all families. Needs no torch."""

import re
from collections.abc import Collection, Mapping
from typing import TypeVar

Value = TypeVar("Value")
OLDER = {
    r"positions\.table$": "positions.table.weight",
    r"positions\.positions\.table": "positions.table",
    r"^output\.(weight|bias)$": r"head.output.\1",
}


def todays_names(tensors: Mapping[str, Value], own: Collection[str]) -> dict[str, Value]:
    """`tensors` under the names that a network with parameters `own` has for them today."""
    return {_todays_name(name, own): value for name, value in tensors.items()}


def _todays_name(name: str, own: Collection[str]) -> str:
    for older, today in OLDER.items():
        renamed = re.sub(older, today, name)
        if name not in own and renamed in own:
            return renamed
    return name

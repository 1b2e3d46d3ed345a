"""The size at which a chapter runs: full, or small for tests."""

import os
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from headwise.errors import unknown

VARIABLE = "HEADWISE_TUTORIAL"
SIZES = ("full", "small")


def tutorial_size() -> str:
    """The size in the environment variable `HEADWISE_TUTORIAL`, by default "full"; `UserError` for an unknown one."""
    size = os.environ.get(VARIABLE) or "full"
    if size not in SIZES:
        raise unknown(f"size in {VARIABLE}", size, SIZES)
    return size


def chapter_settings(full: Mapping[str, Any], small: Mapping[str, Any]) -> SimpleNamespace:
    """The settings of a chapter as attributes, at the size of `tutorial_size`.

    >>> chapter_settings(full={"updates": 600}, small={"updates": 600}).updates
    600

    Raises:
        ValueError: the two sizes have different settings.
    """
    if full.keys() != small.keys():
        raise ValueError(f"settings of one size only: {', '.join(sorted(full.keys() ^ small.keys()))}")
    return SimpleNamespace(**(small if tutorial_size() == "small" else full))

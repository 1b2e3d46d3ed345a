"""The library's own code, as a notebook shows it."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

PACKAGES = Path(__file__).parents[2]


@dataclass(frozen=True)
class SourceListing:
    """The code of a class or function."""

    code: str
    place: str  # file and line

    def __repr__(self) -> str:
        return f"# {self.place}\n{self.code}"

    def _repr_markdown_(self) -> str:
        return f"```python\n{self!r}\n```"


def show_source(code: Callable[..., Any] | type) -> SourceListing:
    """The source of a class, function or method of the library; as the last value of a cell it is displayed.

    >>> from headwise.network.attention import merge_heads
    >>> show_source(merge_heads)
    # headwise/network/attention.py, line ...
    def merge_heads(...
    """
    original = inspect.unwrap(code)
    lines, first = inspect.getsourcelines(original)
    path = Path(inspect.getsourcefile(original) or "")
    name = path.relative_to(PACKAGES).as_posix() if path.is_relative_to(PACKAGES) else path.name
    return SourceListing(dedent("".join(lines)).rstrip("\n"), f"{name}, line {first}")

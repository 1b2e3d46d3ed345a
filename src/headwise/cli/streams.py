"""Replacements for standard streams that a shell has closed (`>&-`); writing to one is an error."""

import os
import sys
from io import TextIOBase
from typing import Any

from headwise.errors import UserError


class ClosedOutput(TextIOBase):
    """Replaces a closed standard output."""

    def reconfigure(self, **how: Any) -> None:
        """As for a text stream."""

    def write(self, text: str) -> int:
        """`UserError`."""
        raise UserError("standard output is closed; name a file with -o, or write to one: > FILE")

    @property
    def buffer(self) -> "ClosedOutput":
        """The stream for bytes."""
        return self


def open_streams() -> None:
    """Replace closed standard streams, so that no file gets their numbers."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115  (for as long as the program runs)
    if sys.stdout is None:
        os.open(os.devnull, os.O_WRONLY)
        sys.stdout = ClosedOutput()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115

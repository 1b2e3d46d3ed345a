"""Standard streams that a shell has closed (`>&-`): something in their places, and an error for whoever writes."""

import os
import sys
from io import TextIOBase
from typing import Any

from sightline.errors import UserError


class ClosedOutput(TextIOBase):
    """Stands for standard output where a shell has closed it (`>&-`)."""

    def reconfigure(self, **how: Any) -> None:
        """As of a stream of text."""

    def write(self, text: str) -> int:
        """Nobody could read it."""
        raise UserError("standard output is closed; name a file with -o, or write to one: > FILE")

    @property
    def buffer(self) -> "ClosedOutput":
        """For bytes."""
        return self


def open_streams() -> None:
    """Put something in the place of standard streams that a shell has closed, so that no file gets their numbers."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115  (for as long as the program runs)
    if sys.stdout is None:
        os.open(os.devnull, os.O_WRONLY)
        sys.stdout = ClosedOutput()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115

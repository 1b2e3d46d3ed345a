"""Write an export to a temporary folder, and move it into place on success."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from headwise.errors import UserError, writing


def write_atomically(out: Path, write: Callable[[Path], str]) -> str:
    """Write to "export" in a temporary folder, and rename it to `out` on success; returns what `write` returns.

    Raises:
        UserError: `out` exists, or cannot be written.
    """
    if out.exists():
        raise UserError(f"{out}: exists already; choose a new name")
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as temporary:
            report = write(Path(temporary))
            (Path(temporary) / "export").rename(out)
    return report

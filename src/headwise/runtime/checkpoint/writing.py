"""Write a model folder or an export in a temporary folder, and move it into place on success."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from headwise.errors import UserError, writing
from headwise.lock import temporary_folder
from headwise.text.prepared.cache import DRAFT_PREFIX

Report = TypeVar("Report")


def write_atomically(out: Path, write: Callable[[Path], Report]) -> Report:
    """Let `write` write to a path in a temporary folder, and rename it to `out` on success; returns its report.

    Raises:
        UserError: `out` exists and is not an empty folder, or cannot be written.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out}: exists already; name another one")
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(out.parent, DRAFT_PREFIX) as temporary:
            report = write(draft := temporary / "draft")
            if out.exists():
                out.rmdir()
            draft.rename(out)
    return report

"""Errors a user can cause, and nothing else.

Every border of the program (files, options, configuration, model directories) turns trouble into a `UserError`: one
line that names the place, the cause and the fix. The command line prints that line and exits with code 2.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(ValueError):
    """Something the user can mend; the message is one complete line."""


def unknown(kind: str, name: str, valid: Iterable[str]) -> UserError:
    """The error for a name that does not exist, with the nearest valid one.

    >>> str(unknown("recipe", "tinny", ["tiny", "base"]))
    "unknown recipe 'tinny'; did you mean 'tiny'? (valid: base, tiny)"
    """
    names = sorted(valid)
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    return UserError(f"unknown {kind} '{name}'{hint} (valid: {', '.join(names)})")

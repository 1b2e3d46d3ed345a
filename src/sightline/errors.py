"""Errors a user can cause, and nothing else.

Every border of the program (files, options, configuration, model directories) turns trouble into a `UserError`: one
line that names the place, the cause and the fix. The command line prints that line and exits with code 2.
"""

import errno
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class UserError(ValueError):
    """Something the user can mend; the message is one complete line."""


class WriteError(UserError):
    """A file cannot be written: the disk is full, a quota used up, a folder gone."""


@contextmanager
def writing(path: str | Path, *others: type[Exception]) -> Iterator[None]:
    """Inside, what the operating system says against writing `path` becomes a `WriteError`.

    `others` are errors of libraries that have its number in their text, as safetensors has.
    """
    try:
        yield
    except BrokenPipeError:
        raise  # whoever reads standard output has had enough: that is no fault of this file's
    except (OSError, *others) as error:
        raise unwritable(path, error) from error


def unwritable(path: str | Path, error: Exception) -> WriteError:
    """The message for a path that cannot be written.

    >>> str(unwritable("a/b", OSError(errno.ENOSPC, "No space left on device")))
    'a/b: cannot be written (No space left on device); free some space there'
    """
    named = re.search(r"os error (\d+)", str(error))
    number = error.errno if isinstance(error, OSError) else int(named[1]) if named else None
    reason = os.strerror(number) if number else str(error)
    way_out = "free some space there" if number in FULL else "see to it that this folder can be written to"
    return WriteError(f"{path}: cannot be written ({reason}); {way_out}")


def unknown(kind: str, name: str, valid: Iterable[str]) -> UserError:
    """The error for a name that does not exist, with the nearest valid one.

    >>> str(unknown("recipe", "tinny", ["tiny", "base"]))
    "unknown recipe 'tinny'; did you mean 'tiny'? (valid: base, tiny)"
    """
    from difflib import get_close_matches  # which nobody waits for who makes no mistake

    names = sorted(valid)
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    return UserError(f"unknown {kind} '{name}'{hint} (valid: {', '.join(names)})")

"""Errors that users can cause, and nothing else.

At every boundary of the program (files, options, configuration, model folders) a problem becomes a `UserError`: one
line with the place, the cause and the fix. The command line prints it and exits with code 2.
"""

import errno
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

CPU_TORCH = "uv pip install torch --torch-backend=cpu"
INSTALL_TORCH = f'pip install "headwise[train]" (on Linux without an NVIDIA GPU, first: {CPU_TORCH})'
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class UserError(ValueError):
    """An error that the user can fix; the message is one complete line."""


class WriteError(UserError):
    """A file cannot be written: a full disk, an exceeded quota, a missing folder."""


class NonFiniteError(UserError):
    """The outputs of a network are not finite."""


def first_line(error: object) -> str:
    """The first line of an error of a library, for a message of one line."""
    return str(error).partition("\n")[0]


@contextmanager
def writing(path: str | Path, *others: type[Exception]) -> Iterator[None]:
    """A context manager that turns errors of the operating system while writing `path` into a `WriteError`.

    `others` are exceptions of libraries with the error number in their text, such as those of safetensors.
    """
    try:
        yield
    except BrokenPipeError:
        raise  # the reader of standard output has stopped: not an error of this file
    except (OSError, *others) as error:
        raise unwritable(path, error) from error


def unwritable(path: str | Path, error: Exception) -> WriteError:
    """The message for a path that cannot be written.

    >>> str(unwritable("a/b", OSError(errno.ENOSPC, "No space left on device")))
    'a/b: cannot be written (No space left on device); free some disk space'
    """
    named = re.search(r"os error (\d+)", str(error))
    number = error.errno if isinstance(error, OSError) else int(named[1]) if named else None
    reason = os.strerror(number) if number else str(error)
    fix = "free some disk space" if number in FULL else "check that this folder is writable"
    fix = "name a new folder, or one in a folder" if number in (errno.EEXIST, errno.ENOTDIR) else fix
    return WriteError(f"{path}: cannot be written ({reason}); {fix}")


def most_similar(name: str, names: Iterable[str]) -> str:
    """The name to suggest for a mistyped one, ignoring case; "" if none resembles it.

    >>> most_similar("TINNY", ["base", "tiny"]), most_similar("nomodel", ["a2"])
    ('tiny', '')
    """
    from difflib import get_close_matches  # slow to import, and needed only here

    in_lower_case = {one.lower(): one for one in names}
    near = get_close_matches(name.lower(), in_lower_case, n=1, cutoff=0.6)
    return in_lower_case[near[0]] if near else ""


def unknown(kind: str, name: str, valid: Iterable[str]) -> UserError:
    """The error for an unknown name, with the closest valid one.

    >>> str(unknown("recipe", "tinny", ["tiny", "base"]))
    "unknown recipe 'tinny'; did you mean 'tiny'? (valid: base, tiny)"
    >>> str(unknown("metric", "bleu", ["BLEU", "TER"]))
    "unknown metric 'bleu'; did you mean 'BLEU'? (valid: BLEU, TER)"
    """
    names = sorted(valid)
    near = most_similar(name, names)
    hint = f"; did you mean '{near}'?" if near else ""
    return UserError(f"unknown {kind} '{name}'{hint} (valid: {', '.join(names)})")

"""Refuse options that have no effect beside others, and files that would be overwritten, before a command starts.

An ignored option is worse than a refused one. A command's `RULES` hold what the command line alone shows. Rules that
depend on a model's settings are in `options.refuse_unread`; the range of single values is checked by `options.whole`
and the library.
"""

import argparse
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.errors import UserError


@dataclass(frozen=True)
class FlagRule:
    """Options, by the names of their values, that have no effect where `holds`; `why` completes the message."""

    flags: Sequence[str]
    holds: Callable[[argparse.Namespace], Any]
    why: str


def in_file(path: str) -> str:
    """The type of an option that names an input file, so that `refuse_overwriting` knows it."""
    return path


def out_file(path: str) -> str:
    """The type of an option that names an output file."""
    return path


def typed_flags(parser: argparse.ArgumentParser, options: argparse.Namespace) -> dict[str, str]:
    """The options that differ from their defaults, by the names of their values."""
    return {
        action.dest: action.option_strings[0] if action.option_strings else str(action.metavar or action.dest)
        for action in parser._actions
        if hasattr(options, action.dest) and getattr(options, action.dest) != action.default
    }


def refuse_meaningless(rules: Sequence[FlagRule], flags: Mapping[str, str], options: argparse.Namespace) -> None:
    """`UserError` for the first option that has no effect beside the others."""
    for rule in rules:
        for name in rule.flags:
            if name in flags and rule.holds(options):
                raise UserError(f"{flags[name]} {rule.why}")


def in_flags(message: str, flags: Mapping[str, str]) -> str:
    """A message of the library with settings written as options.

    >>> in_flags("decode.n_best = 9 is more than decode.beam_size = 2", {"n_best": "--n-best"})
    '--n-best 9 is more than decode.beam_size = 2'
    """

    def flag(found: re.Match[str]) -> str:
        return f"{flags[found[1]]} " if found[1] in flags else found[0]

    return re.sub(r"(?<![\w.])(?:decode\.)?(\w+) = ", flag, message)


def refuse_overwriting(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """`UserError` if a command would overwrite one of its input files, under whatever name, or write a file twice."""
    read, written = list(_files(parser, options, in_file)), list(_files(parser, options, out_file))
    for flag, path in written:
        same = next((other for _, other in read if _same(path, other)), None)
        if same is not None:
            what = "standard output" if path == "-" else f"{flag} {path}"
            source = "standard input" if same == "-" else same
            raise UserError(f"{what}: is the file that is read ({source}); write into another one")
    files = [(flag, Path(path).resolve()) for flag, path in written if path != "-"]
    for number, (flag, file) in enumerate(files):
        for earlier, other in files[:number]:
            if file == other:
                raise UserError(f"{flag} {file}: {earlier} writes this file already; name another one")


def _files(
    parser: argparse.ArgumentParser, options: argparse.Namespace, kind: Callable[[str], str]
) -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        if action.type is kind:
            value = getattr(options, action.dest)
            flag = action.option_strings[0] if action.option_strings else ""
            for path in _flat(value):
                named = path.partition("=")[2] if path and kind is in_file else ""  # of NAME=FILE
                yield from ((flag, name) for name in (path, named) if name)


def _flat(value: Any) -> Iterator[str]:
    """The values of an option that may take several files and be repeated."""
    if not isinstance(value, list):
        yield value
        return
    for item in value:
        yield from _flat(item)


def _same(written: str, read: str) -> bool:
    """Whether both are the same regular file; a device or a pipe may be read and written."""
    try:
        one = os.fstat(sys.stdout.fileno()) if written == "-" else os.stat(written)
        other = os.fstat(sys.stdin.fileno()) if read == "-" else os.stat(read)
    except (OSError, ValueError):  # no such file, or a stream without one
        return False
    return stat.S_ISREG(one.st_mode) and os.path.samestat(one, other)

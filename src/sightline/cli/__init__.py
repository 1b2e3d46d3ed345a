"""The command line: a module for each group of subcommands, which parse, call and print. Logic lives elsewhere.

A module has `add(commands)`, which registers its subcommands; `COMMANDS` lists the modules. `options.py` and `files.py`
hold what several share, `rules.py` what a command line may not say.

Output goes to standard output, everything said to the user to standard error. A mistake of the user's is one line and
exit code 2. Torch is imported by the commands that need it, so that help is instant.
"""

import argparse
import errno
import os
import sys
import warnings
from collections.abc import MutableMapping, Sequence
from contextlib import ExitStack
from difflib import get_close_matches
from typing import Any, NoReturn

import sightline
from sightline.cli import (
    attention,
    check_corpus,
    corpora,
    demo,
    evaluate,
    export,
    families,
    generate,
    inspect,
    results,
    serve,
    study,
    sweep,
    tasks,
    train,
    translate,
    tune,
)
from sightline.cli.rules import in_flags, refuse_meaningless, refuse_overwriting, typed_flags
from sightline.device import keep_to_quota
from sightline.errors import FULL, UserError, unknown, unwritable

UNWRITABLE = (*FULL, errno.EIO, errno.EBADF)  # numbers of errors of standard output

# In the order of the help.
COMMANDS = (
    demo,
    train,
    tune,
    check_corpus,
    translate,
    tasks,
    corpora,
    evaluate,
    attention,
    inspect,
    serve,
    sweep,
    results,
    families,
    generate,
    export,
    study,
)


NO_THREADS = (
    "the system starts no more threads for this user or container: raise the limit (`ulimit -u`, pids.max, "
    "`docker run --pids-limit`), end other programs, or set OMP_NUM_THREADS=1"
)


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see `{self.prog} --help`")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 2 for a mistake of the user's, 130 for Ctrl-C."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    warnings.formatwarning = one_line
    wait_briefly(os.environ)
    if None in (sys.stdin, sys.stdout, sys.stderr):
        from sightline.cli.streams import open_streams

        open_streams()
    keep_to_quota(os.environ)
    flags: dict[str, str] = {}
    try:
        options = _parsed([argument for argument in arguments if argument != "--debug"] or ["--help"])
        flags = getattr(options, "flags", flags)
        with ExitStack() as options.closing:
            options.run(options)
        sys.stdout.flush()
        return 0
    except UserError as error:
        if debug:
            raise
        print(f"sightline: error: {in_flags(' '.join(str(error).split()), flags)}", file=sys.stderr)
        return 2
    except MemoryError:  # where nobody knew what to make smaller, as when a model is read
        if debug:
            raise
        print("sightline: error: memory has run out: end other programs, or take a smaller model", file=sys.stderr)
        return 2
    except RuntimeError as error:
        if debug or "can't start new thread" not in str(error):
            raise
        print(f"sightline: error: {NO_THREADS}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("sightline: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has had enough
        _discard_output()
        return 0
    except OSError as error:
        if debug or error.filename or error.errno not in UNWRITABLE:
            raise
        _discard_output()
        print(f"sightline: error: {unwritable('standard output', error)}", file=sys.stderr)
        return 2


def _discard_output() -> None:
    """Have what is still to be written go nowhere, or Python would complain at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """`parse`; help that has been printed is written out before the program ends."""
    try:
        return parse(arguments)
    except SystemExit:
        sys.stdout.flush()
        raise


def wait_briefly(environment: MutableMapping[str, str]) -> None:
    """Have torch's threads wait for each other in a loop for a fraction of a millisecond only, then asleep.

    GNU's OpenMP, which torch's builds for Linux use, loops 300,000 times otherwise. Where another program has one of
    the cores, the thread waited for does not run meanwhile: two threads are slower than one. Read when torch is
    loaded; where the user has said how threads wait, it is left at that.
    https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html
    """
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", "10000")


def one_line(warning: Warning | str, *where: Any) -> str:
    """A warning without the place in our sources that gave it."""
    return f"sightline: warning: {' '.join(str(warning).split())}\n"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of a command line, with those that were typed as `flags`.

    `UserError` suggests the nearest valid command or option, and refuses what would be left unread or overwritten.
    """
    parser, commands = build_parser()
    if arguments and not arguments[0].startswith("-") and arguments[0] not in commands:
        raise unknown("command", arguments[0], commands)
    options, rest = parser.parse_known_args(arguments)
    if rest:
        known = [option for action in commands[options.command]._actions for option in action.option_strings]
        near = get_close_matches(rest[0].split("=")[0], known, n=1, cutoff=0.6)
        hint = f"; did you mean '{near[0]}'?" if near else f"; see `sightline {options.command} --help`"
        raise UserError(f"sightline {options.command} has no use for '{rest[0]}'{hint}")
    parser = commands[options.command]
    options.flags = typed_flags(parser, options)
    refuse_meaningless(options.command, options.flags, options)
    refuse_overwriting(parser, options)
    return options


def build_parser() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """The parser, and those of the subcommands by name."""
    parser = Parser(prog="sightline", description="Train a translator on your own files, and translate with it.")
    parser.add_argument("--version", action="version", version=f"sightline {sightline.__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    for module in COMMANDS:
        module.add(commands)
    return parser, dict(commands.choices)

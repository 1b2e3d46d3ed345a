"""The command line in a process of its own that starts in a tenth of a second.

A server with torch and Headwise loaded forks a process for each command (the "forkserver" of `multiprocessing`), which
saves the three seconds that imports take. The process is as real as one that a shell starts: it has its own memory,
standard error and signal handlers, and may be killed. Types and shapes are not checked in it.
"""

import multiprocessing
import os
import resource
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.reduction import DupFd
from typing import Any

from holding import stop_when_told

CONTEXT = multiprocessing.get_context("forkserver")
COMMANDS = [f"headwise.cli.commands.{name}" for name in ("train", "translate", "evaluate", "serve")]
CONTEXT.set_forkserver_preload(["programs", "torch", "headwise.cli", *COMMANDS])


def _main(arguments: list[str], err: Any, environment: dict[str, str], folder: str, largest_file: int | None) -> None:
    """What the forked process does."""
    from headwise.cli import main  # the tests' own copy is checked by `shapes.py`, and must not be imported before it

    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(err.detach(), 2)
    sys.stdin = open(os.devnull)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    stop_when_told()
    if largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    sys.exit(main(arguments))


class Program:
    """`headwise ARGUMENTS`, started; the part of `subprocess.Popen` that tests use."""

    def __init__(self, arguments: Sequence[object], largest_file: int | None = None) -> None:
        reading, writing = os.pipe()
        self.stderr = os.fdopen(reading, encoding="utf-8")
        words = [str(argument) for argument in arguments]
        self._process = CONTEXT.Process(target=_Command(words, writing, largest_file), daemon=True)
        self._process.start()
        os.close(writing)
        self.pid = self._process.pid or 0

    @property
    def returncode(self) -> int | None:
        """The exit code; the negative number of the signal that ended it; None as long as it runs."""
        return self._process.exitcode

    poll = returncode.fget

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it has ended, and the server has not said so yet
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def wait(self, timeout: float | None = None) -> int | None:
        self._process.join(timeout)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[None, str]:
        """Nothing and what it still writes to standard error, until it ends."""
        said = "" if self.stderr.closed else self.stderr.read()
        self.close(timeout)
        return None, said

    def close(self, timeout: float | None = None) -> None:
        self.wait(timeout)
        self.stderr.close()

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        self.close()


class _Command:
    """`_main` and its arguments. The end of the pipe can be handed over only while a process is being started."""

    def __init__(self, arguments: list[str], writing: int, largest_file: int | None) -> None:
        self.arguments, self.writing, self.largest_file = arguments, writing, largest_file

    def __reduce__(self) -> tuple[Any, ...]:
        given = self.arguments, DupFd(self.writing), dict(os.environ), os.getcwd(), self.largest_file
        return partial, (_main, *given)

"""A pool of worker processes, with results in the order in which the work was submitted.

Every process starts by importing the main program, so a program that uses them needs the guard
`if __name__ == "__main__":`.
"""

import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from headwise.errors import UserError

Chunk = TypeVar("Chunk")
Result = TypeVar("Result")
Submit = Callable[..., Future[Any]]  # takes a function of a module and its arguments, which are pickled


@contextmanager
def worker_processes(workers: int, what: str, start: Callable[..., None], *arguments: object) -> Iterator[Submit]:
    """Start `workers` fresh processes that each call `start(*arguments)` first; yields a function to submit work.

    Args:
        what: name of one process for the error message, such as "a translating process".

    Raises:
        UserError: a process was killed.
    """
    # Importing these takes longer than starting a translation in one process.
    from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(workers, get_context("spawn"), _start, (start, *arguments)) as pool:

        def submit(function: Callable[..., Result], *given: object) -> Future[Result]:
            try:
                return pool.submit(function, *given)
            except (OSError, ValueError) as error:  # a process starts here while the pipes are being closed
                raise BrokenProcessPool from error

        try:
            yield submit
        except BrokenProcessPool:
            raise UserError(
                f"{what} was killed, perhaps because memory ran out: use fewer processes (--workers 1)"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def _start(start: Callable[..., None], *arguments: object) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process handles Ctrl-C
    start(*arguments)


def ordered_results(
    chunks: Iterable[Chunk], submit: Callable[[Chunk], Future[list[Result]]], limit: Callable[[], int]
) -> Iterator[Result]:
    """The results of all chunks in order; fewer than `limit()` chunks are in flight when a result is awaited."""
    pending: deque[Future[list[Result]]] = deque()
    for chunk in chunks:
        pending.append(submit(chunk))
        while len(pending) >= limit():
            yield from pending.popleft().result()
    while pending:
        yield from pending.popleft().result()

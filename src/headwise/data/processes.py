"""Several processes that do one kind of work, and their results in the order in which the work was given.

A program that asks for them needs the guard `if __name__ == "__main__":`, for every process starts by importing it.
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
Submit = Callable[..., Future[Any]]  # a function of a module and its arguments, which are pickled


@contextmanager
def worker_processes(workers: int, what: str, begin: Callable[..., None], *arguments: object) -> Iterator[Submit]:
    """So many fresh processes, each of which begins with `begin(*arguments)`, as the function that gives them work.

    Args:
        what: one of them, for the error: "a translating process".

    Raises:
        UserError: one of them was ended from outside.
    """
    # Importing these takes longer than starting a translation in one process.
    from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(workers, get_context("spawn"), _begin, (begin, *arguments)) as pool:

        def submit(function: Callable[..., Result], *given: object) -> Future[Result]:
            try:
                return pool.submit(function, *given)
            except (OSError, ValueError) as error:  # one begins here, while the pipes are being closed
                raise BrokenProcessPool from error

        try:
            yield submit
        except BrokenProcessPool:
            why = f"{what} was ended from outside, perhaps for lack of memory"
            raise UserError(f"{why}: use fewer of them (--workers 1)") from None
        finally:
            pool.shutdown(cancel_futures=True)


def _begin(begin: Callable[..., None], *arguments: object) -> None:
    """A process of a pool leaves Ctrl-C to the one that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    begin(*arguments)


def ordered_results(
    chunks: Iterable[Chunk], submit: Callable[[Chunk], Future[list[Result]]], at_once: Callable[[], int]
) -> Iterator[Result]:
    """The results of chunk after chunk, whoever is ready first; at most so many are on their way."""
    pending: deque[Future[list[Result]]] = deque()
    for chunk in chunks:
        pending.append(submit(chunk))
        while len(pending) >= at_once():
            yield from pending.popleft().result()
    while pending:
        yield from pending.popleft().result()

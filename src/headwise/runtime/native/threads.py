"""Threads of the compiled library within a batch (`pool.c`)."""

from collections.abc import Callable
from threading import Lock
from typing import TypeVar

import numpy as np

from headwise.runtime.native import library as c
from headwise.runtime.native.arrays import at

Result = TypeVar("Result")


def use_threads(count: int) -> None:
    """Set how many threads the library may use for calls of this Python thread; 1 by default.

    They share matrix products; results are the same. While another thread uses them, calls compute alone.
    """
    assert count > 0
    if found := c.library():
        found.headwise_set_threads(count, None)


class SharedThreads:
    """`threads` threads for `tasks` tasks, which run in threads of their own.

    When fewer tasks than threads are left, these use the threads of the finished ones, too.
    """

    def __init__(self, threads: int, tasks: int) -> None:
        self._threads, self._unfinished, self._lock = threads, tasks, Lock()
        self.each = np.ones(1, np.int32)  # read by the library at each product
        self._share()

    def _share(self) -> None:
        self.each[0] = max(1, self._threads // max(1, self._unfinished))

    def run(self, task: Callable[[], Result]) -> Result:
        """The result of a task, in the calling thread."""
        library = c.library()
        if library:
            library.headwise_set_threads(self._threads, at(self.each))
        try:
            return task()
        finally:
            if library:
                library.headwise_set_threads(1, None)
            with self._lock:
                self._unfinished -= 1
                self._share()

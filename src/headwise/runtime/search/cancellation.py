"""Cancellation of the searches that a thread runs, by another thread.

A model's methods do not take a flag: the thread that calls them runs them in the context of a `Cancellation`, and every
search in it (`engine.execute`) looks at that. See `SearchEngine.search` for stopping a search at its next step.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from headwise.contract import SearchCancelled

_CURRENT: ContextVar["Cancellation | None"] = ContextVar("cancellation", default=None)


class Cancellation:
    """Cancels the searches of the code that runs in its context.

    >>> cancellation = Cancellation()
    >>> cancellation.cancel()
    >>> with cancellation.context():
    ...     check_cancelled()
    Traceback (most recent call last):
    headwise.contract.SearchCancelled
    """

    def __init__(self) -> None:
        self._lock, self._flags = Lock(), list[NDArray[np.int32]]()
        self.is_cancelled = False

    def cancel(self) -> None:
        """Searches in the context raise `SearchCancelled` at their next step; callable from any thread."""
        with self._lock:
            self.is_cancelled = True
            for flag in self._flags:
                flag[0] = 1

    @contextmanager
    def context(self) -> Iterator[None]:
        """A context manager in which searches of this thread can be cancelled."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)

    @contextmanager
    def setting(self, flag: NDArray[np.int32]) -> Iterator[None]:
        """A context manager in which `cancel` sets this flag, too."""
        with self._lock:
            self._flags.append(flag)
        try:
            yield
        finally:
            with self._lock:
                self._flags = [one for one in self._flags if one is not flag]


def check_cancelled() -> None:
    """Raise `SearchCancelled` if the context is cancelled."""
    current = _CURRENT.get()
    if current and current.is_cancelled:
        raise SearchCancelled


@contextmanager
def set_when_cancelled(flag: NDArray[np.int32]) -> Iterator[None]:
    """A context manager in which the flag of a search becomes non-zero when the context is cancelled."""
    current = _CURRENT.get()
    if current is None:
        yield
        return
    with current.setting(flag):
        check_cancelled()
        yield

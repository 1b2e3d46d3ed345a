"""Types and shapes are checked in the first two calls of every function in every test, then in calls 16, 256 and so on.

A search or a training makes thousands of calls, and to check them all took half of the time of the whole suite.
"""

from collections import defaultdict
from collections.abc import Callable
from functools import cache, wraps
from inspect import isfunction
from types import CodeType
from typing import Any

import jaxtyping
import torch

CALLS = 2  # of each function, in each test, before only some are checked: those whose number is a power of 16
_calls: dict[CodeType, int] = defaultdict(int)  # of the test that runs; functions within functions are one each


def check_calls() -> None:
    """Has whatever imports `headwise` from now on checked."""
    jaxtyping.install_import_hook("headwise", "beartype.beartype")
    jaxtyping.jaxtyped = sometimes(jaxtyping.jaxtyped)  # which the hook puts before every function


def next_test() -> None:
    """Has all functions begin anew, so that what is checked depends on no other test."""
    _calls.clear()


def is_power_of_16(number: int) -> bool:
    """Whether a positive number is 1, 16, 256 and so on.

    >>> [n for n in range(1, 5000) if is_power_of_16(n)]
    [1, 16, 256, 4096]
    """
    return number & (number - 1) == 0 and number.bit_length() % 4 == 1


def sometimes(decorator: Callable[..., Any]) -> Callable[..., Any]:
    """`decorator`, called as `decorator(**how)(function)`, for some calls of each function."""

    def decorate(**how: Any) -> Callable[[Any], Any]:
        def decorated(plain: Any) -> Any:
            if not isfunction(plain):  # a class, whose __init__ is checked, or a descriptor
                return decorator(**how)(plain)
            checked = cache(lambda: decorator(**how)(plain))

            @wraps(plain)
            def call(*args: Any, **kwargs: Any) -> Any:
                if torch.compiler.is_compiling():  # torch.compile traces neither caches nor checks
                    return plain(*args, **kwargs)
                _calls[plain.__code__] = calls = _calls[plain.__code__] + 1
                function = checked() if calls <= CALLS or is_power_of_16(calls) else plain
                return function(*args, **kwargs)

            return call

        return decorated

    return decorate

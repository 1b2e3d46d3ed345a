"""Types and shapes are checked in an eighth of the tests: in the first two calls of every function, then in calls 16,
256 and so on.

A search or a training makes thousands of calls; to check them all would take half of the time of the whole suite.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import cache, wraps
from inspect import isclass, isfunction
from types import CodeType
from typing import Any
from zlib import crc32

import jaxtyping
import torch
from sampling import ALL

SHARE = 8  # of this number of tests one is checked, chosen by its name
CALLS = 2  # of each function, in each test, before only some are checked: those whose number is a power of 16
_is_checked = [True]  # whether the test that runs is
_calls: dict[CodeType, int] = defaultdict(int)  # of the test that runs; functions within functions are one each


def check_calls() -> None:
    """Has whatever imports `headwise` from now on checked."""
    jaxtyping.install_import_hook("headwise", "beartype.beartype")
    jaxtyping.jaxtyped = sometimes(jaxtyping.jaxtyped)  # which the hook puts before every function


def next_test(name: str) -> None:
    """Has all functions begin anew, so that what is checked depends on the name of a test, and on no other test."""
    _calls.clear()
    _is_checked[0] = ALL or crc32(name.encode()) % SHARE == 0


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
            if isclass(plain):
                if is_dataclass(plain):
                    plain.__init__ = decorated(plain.__init__)
                return plain
            if isinstance(plain, classmethod | staticmethod):
                return type(plain)(decorated(plain.__func__))
            if isinstance(plain, property):
                return property(*(one and decorated(one) for one in (plain.fget, plain.fset, plain.fdel)))
            if not isfunction(plain):  # such as functools.cached_property
                return decorator(**how)(plain)
            checked = cache(lambda: decorator(**how)(plain))

            @wraps(plain)
            def call(*args: Any, **kwargs: Any) -> Any:
                if not _is_checked[0] or torch.compiler.is_compiling():  # it traces neither caches nor checks
                    return plain(*args, **kwargs)
                _calls[plain.__code__] = calls = _calls[plain.__code__] + 1
                function = checked() if calls <= CALLS or is_power_of_16(calls) else plain
                return function(*args, **kwargs)

            return call

        return decorated

    return decorate

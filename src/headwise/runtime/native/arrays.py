"""Arrays for C: addresses, conversion, and range checks."""

from collections.abc import Sequence
from ctypes import c_void_p
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[Any]  # of integers


def at(array: NDArray[Any] | None) -> c_void_p | None:
    """The address of an array, valid as long as the array exists."""
    return None if array is None else c_void_p(array.ctypes.data)


def addresses(objects: Sequence[Any]) -> Any:
    """The addresses of library objects, as a C array."""
    return (c_void_p * len(objects))(*(each.address for each in objects))


def floats(array: Any) -> Floats:
    """A contiguous float32 array."""
    return np.ascontiguousarray(array, np.float32)


def all_below(numbers: Ints, end: int) -> bool:
    """Whether all numbers are in 0 ... end - 1."""
    return not numbers.size or bool(numbers.min() >= 0 and numbers.max() < end)

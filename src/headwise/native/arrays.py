"""Arrays on their way into C: where they are, and whether their numbers are what C goes by without looking."""

from collections.abc import Sequence
from ctypes import c_void_p
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[Any]  # of whole numbers


def at(array: NDArray[Any] | None) -> c_void_p | None:
    """Its address, which is good for as long as the array is."""
    return None if array is None else c_void_p(array.ctypes.data)


def addresses(objects: Sequence[Any]) -> Any:
    """Those of what the library has made, as an array of C."""
    return (c_void_p * len(objects))(*(each.address for each in objects))


def floats(array: Any) -> Floats:
    """In float32, one number behind the other."""
    return np.ascontiguousarray(array, np.float32)


def all_below(numbers: Ints, end: int) -> bool:
    """Whether all are among 0 ... end - 1."""
    return not numbers.size or bool(numbers.min() >= 0 and numbers.max() < end)

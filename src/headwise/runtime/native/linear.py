"""Linear layers packed for the compiled library, and the memory that they are packed into."""

from collections.abc import Sequence
from ctypes import c_void_p
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.runtime.native import library as c
from headwise.runtime.native.arrays import Floats, Ints, all_below, at, floats

LANES = 8  # numbers per SIMD register; rows are padded to a multiple
REGISTER = 64  # bytes of the longest SIMD register
BLOCK = 64 << 20  # bytes allocated at once
NUMBERS = ("float32", "int8", "bfloat16", "int4")  # of weights, in the order of products.h


class Linear:
    """A packed linear layer, y = x W^T + b.

    Args:
        weight: (d_out, d_in).
        bias: (d_out,) or None.
        numbers: one of NUMBERS. int8: weights and inputs are 8-bit integers, with one scale for each row of inputs and
            each output. bfloat16: weights are rounded, arithmetic is float32. int4: weights are 4-bit integers with one
            scale for each output and 32 inputs, inputs are 8-bit integers with a scale for each 32.
        after_relu: inputs are never negative, which gives them one more bit in int8.
        in_blocks: in int8, each 32 inputs have a scale of their own, as they always have in int4.
        memory: for the packed layer; None = its own.
    """

    def __init__(
        self,
        weight: Floats,
        bias: Floats | None,
        numbers: str = "float32",
        after_relu: bool = False,
        memory: "PackedMemory | None" = None,
        in_blocks: bool = False,
    ) -> None:
        weight, memory = floats(weight), memory or PackedMemory(0)
        bias = None if bias is None else floats(bias)
        d_out, d_in = weight.shape
        assert d_out and d_in and (bias is None or bias.shape == (d_out,)), "a weight and its bias"
        address = self._allocate(d_out, d_in, numbers, memory)
        kind, values = NUMBERS.index(numbers), None if memory.filled else at(weight)
        made = c.needed().headwise_linear(address, values, at(bias), d_out, d_in, kind, after_relu, in_blocks)
        if not made:
            raise MemoryError("not enough memory to pack a layer")

    def rows(self, index: Ints) -> "Linear":
        """A layer of some of the outputs, with bit-identical results."""
        assert index.ndim == 1 and len(index) and all_below(index, self.d_out), "indices of outputs"
        index = np.ascontiguousarray(index, np.int32)
        layer = object.__new__(Linear)
        zeros = layer._allocate(len(index), self.d_in, self.numbers, PackedMemory(0))
        c.needed().headwise_linear_rows(zeros, self.address, at(index), len(index))
        return layer

    def _allocate(self, d_out: int, d_in: int, numbers: str, memory: "PackedMemory") -> c_void_p:
        self.d_out, self.d_in, self.numbers = d_out, d_in, numbers
        self._memory = memory.take(c.needed().headwise_linear_size(d_out, d_in, NUMBERS.index(numbers)))
        self.address = self._memory.ctypes.data
        return c_void_p(self.address)

    def __call__(self, x: Floats) -> Floats:
        """(rows, d_in) to (rows, d_out); the result of a row does not depend on the other rows."""
        assert x.ndim == 2 and x.shape[1] == self.d_in, f"inputs of width {self.d_in}, not {x.shape}"
        x = floats(x)
        y = np.empty((len(x), self.d_out), np.float32)
        if c.needed().headwise_linear_forward(self.address, at(x), len(x), at(y)):
            raise MemoryError("not enough memory to apply a layer")
        return y


class PackedMemory:
    """Memory for packed layers, in blocks large enough for huge pages, which make single sentences faster.

    Unused parts of a block take no physical memory.
    """

    filled = False  # whether it already holds packed layers: see `runtime.checkpoint.packed`

    def __init__(self, block: int = BLOCK) -> None:
        self._block, self._left = block, np.empty(0, np.uint8)

    def take(self, size: int) -> NDArray[np.uint8]:
        """Zeros, aligned to a register."""
        if size > len(self._left):
            zeros = np.zeros(max(self._block, size) + REGISTER, np.uint8)
            self._left = zeros[-zeros.ctypes.data % REGISTER :]
        taken, self._left = self._left[:size], self._left[-(-size // REGISTER) * REGISTER :]
        return taken

    def kept(self, table: Floats, halved: bool) -> NDArray[Any]:
        """A table of embeddings, in bfloat16 if `halved`; subclasses may store it."""
        return to_bfloat16(table) if halved else table

    def joined(self, arrays: Sequence[Floats]) -> Floats:
        """Concatenated weights or biases, to be packed as one layer."""
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def pad_rows(rows: Floats) -> Floats:
    """Rows padded with zeros to whole registers."""
    more = round_up(rows.shape[-1]) - rows.shape[-1]
    return np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, more)]) if more else rows


def to_bfloat16(array: Floats) -> NDArray[np.uint16]:
    """The nearest numbers in bfloat16, of two the even one: the upper to_bfloat16 of float32."""
    nearest = np.empty(array.shape, np.uint16)
    c.needed().headwise_to_bfloat16(at(array), array.size, at(nearest))
    return nearest


def round_up(width: int) -> int:
    """The next multiple of `LANES`."""
    return -(-width // LANES) * LANES

"""Memory image of a packed network for WebAssembly, where an address has four bytes.

Nothing is packed in the browser: the image is a copy of what the library packed here, which all instruction sets read.
Addresses count from the start of the image. A list has the positions of all addresses, and the page adds the location
of the image to each.
"""

import ctypes
import struct
from ctypes import Structure, c_float, c_int, c_int32, c_void_p
from hashlib import sha256
from typing import Any

from headwise.runtime.native import library as c
from headwise.runtime.native.linear import LANES
from headwise.runtime.native.network import CompiledNetwork

ALIGNED = 64  # bytes: alignment expected by the C code
PANEL = 16  # outputs packed together: simd.h
LINEARS = ("in_", "memory", "out", "up", "down", "output")  # fields of structures that point to a `Linear`
WORDS = {c_int: "i", c_int32: "i", c_float: "f"}  # four-byte fields; all others are addresses


class Image:
    """The memory image of a network, with `positions` positions."""

    def __init__(self, network: CompiledNetwork, positions: int) -> None:
        network.extend_positions(positions)
        self.bytes = bytearray(ALIGNED)  # no object has the address 0
        self.pointers: list[int] = []  # positions of addresses
        self._known: dict[int, int] = {}  # copied objects by their original address
        self._numbers: dict[bytes, int] = {}  # copied numbers by digest
        structure, width = network.structure, -(-network.d_model // LANES) * LANES
        assert len({*network.vocabulary.values()}) == 1, "one vocabulary for both sides"
        self._layers = {"encoder": structure.n_encoder_layers, "decoder": structure.n_decoder_layers}
        self._sizes = {"weight": 4 * width, "bias": 4 * width, "positions": 4 * positions * width}
        self._sizes["rows"] = (2 if structure.target.half else 4) * network.vocabulary["tgt"] * width
        self._sizes["angles"] = 4 * positions * 2 * structure.rotary.half
        self.model = self._write(self._words(structure))

    def _words(self, record: Structure) -> list[tuple[bytes, bool]]:
        """Words of four bytes, and whether each is an address."""
        words: list[tuple[bytes, bool]] = []
        for name, kind in record._fields_:  # pyright: ignore[reportAssignmentType]
            value: Any = getattr(record, name)
            if isinstance(value, Structure):
                words += self._words(value)
            elif kind in WORDS:
                words.append((struct.pack("<" + WORDS[kind], value), False))
            else:
                at = ctypes.cast(value, c_void_p).value if value else None
                words.append((struct.pack("<i", self._place(name, at) if at else 0), bool(at)))
        return words

    def _place(self, name: str, at: int) -> int:
        """The position in the image of what a field of this name points to."""
        if at not in self._known:
            self._known[at] = self._copied(name, at)
        return self._known[at]

    def _copied(self, name: str, at: int) -> int:
        if name in self._layers:
            layers = (c.Layer * self._layers[name]).from_address(at)
            return self._write([word for layer in layers for word in self._words(layer)])
        if name in LINEARS:
            return self._write(self._linear(c.Linear.from_address(at)))
        return self._shared(ctypes.string_at(at, self._sizes[name]))

    def _linear(self, linear: c.Linear) -> list[tuple[bytes, bool]]:
        columns = -(-linear.d_out // PANEL) * PANEL
        sizes = {
            "quantised": columns * linear.depth,
            "compensation": 4 * columns,
            "scales": 4 * columns,
            "bias": 4 * columns,
        }
        words = list[tuple[bytes, bool]]()
        for name, kind, *_ in c.Linear._fields_:
            value = getattr(linear, name)
            if kind is c_void_p:
                value = self._block(ctypes.string_at(value, sizes[name])) if name in sizes else 0
            words.append((struct.pack("<i", value), kind is c_void_p and bool(value)))
        return words

    def _write(self, words: list[tuple[bytes, bool]]) -> int:
        """Write a structure, and remember its addresses."""
        start = self._block(b"".join(word for word, _ in words))
        at = start
        for word, is_address in words:
            self.pointers += [at] if is_address else []
            at += len(word)
        return start

    def _shared(self, content: bytes) -> int:
        """Write numbers only once, such as tables that both sides share."""
        digest = sha256(content).digest()
        if digest not in self._numbers:
            self._numbers[digest] = self._block(content)
        return self._numbers[digest]

    def _block(self, content: bytes) -> int:
        start = len(self.bytes)
        self.bytes += content + bytes(-len(content) % ALIGNED)
        return start


def structure_layout(record: type[Structure], name: str = "") -> list[tuple[str, str]]:
    """The words of a structure in order: names (nested ones with a dot), and "i", "f", or "p" for an address.

    >>> structure_layout(c.Ids)
    [('ids', 'p'), ('count', 'i')]
    """
    words: list[tuple[str, str]] = []
    for field, kind in record._fields_:  # pyright: ignore[reportAssignmentType]
        if isinstance(kind, type) and issubclass(kind, Structure):
            words += structure_layout(kind, f"{name}{field}.")
        else:
            words.append((name + field, WORDS.get(kind, "p")))
    return words


def structure_values(record: Structure) -> dict[str, int | float]:
    """The numbers of a structure by name, without addresses."""
    found = {}
    for field, kind in record._fields_:  # pyright: ignore[reportAssignmentType]
        if kind in WORDS:
            found[field] = getattr(record, field)
    return found

"""The steps of a walk as the compiled library records them, by their ids in `pytorch.inspect.walk`.

The page of `export --to web` reads the same fields in JavaScript (`serve/web/assets/walking.js`).
"""

from collections.abc import Sequence
from ctypes import byref
from typing import Any

import numpy as np

from headwise.runtime.native import library as c
from headwise.runtime.native.arrays import Floats, at
from headwise.runtime.native.linear import Linear
from headwise.runtime.native.network import CompiledNetwork, head_columns

ROWS = {  # fields with d_model columns, and the ids of their steps
    "embeddings": "embeddings", "positions": "position-codes", "sum": "embedded", "embedded": "embedded-norm",
    "input": "input", "top": "top", "output": "output",
}  # fmt: skip
ENDS = {"norm": "norm", "out": "heads", "add": "add"}


class Recorded:
    """One recording of a layer and a head.

    Args:
        network: packed.
        source: tokens with the end token; none for a decoder alone.
        target: tokens with the start token.
        decoder, layer, head: what to record.
    """

    def __init__(
        self,
        network: CompiledNetwork,
        source: Sequence[int],
        target: Sequence[int],
        decoder: bool,
        layer: int,
        head: int,
    ) -> None:
        self.network, self.arrays = network, dict[str, Floats]()
        self.decoder, self.layer, self.head = decoder, layer, head
        self.source, self.target = source, target
        self.places = ("self_", "cross") if decoder and source else ("self_",)
        structure = network.structure
        self.of_layer: Any = (structure.decoder if self.decoder else structure.encoder)[self.layer]
        self.walk = c.Walk(decoder=self.decoder, layer=self.layer, head=self.head)
        self._plan()
        sides = [np.array(side, np.int32) for side in (source, target)]
        if source:
            network.check_tokens(sides[0], "src")
        network.check_tokens(sides[1], "tgt")
        lengths = [np.array([len(side)], np.int32) for side in (source, target)]
        network.extend_positions(max(map(len, sides)))
        recording = c.Recording(end=structure.n_decoder_layers, walk=self.walk)
        pairs = [at(array) for pair in zip(sides, lengths, strict=True) for array in pair]
        pairs = pairs if source else [None, None, *pairs[2:]]
        if c.needed().headwise_read(byref(structure), *pairs, 1, byref(recording)):
            raise MemoryError("not enough memory to record a pair")

    def _room(self, record: Any, field: str, name: str, rows: int, columns: int) -> None:
        self.arrays[name] = np.full((rows, columns), -np.inf, np.float32)
        setattr(record, field, at(self.arrays[name]))

    def _plan(self) -> None:
        """Memory for every field."""
        n, d = len(self.target if self.decoder else self.source), self.network.d_model
        for field, name in ROWS.items():
            self._room(self.walk, field, name, n, d)
        self._room(self.walk, "memory", "memory", len(self.source), d)
        for place in self.places:
            self._plan_attention(getattr(self.walk, place), place, n)
        for field, name in {**ENDS, "out": "outside"}.items():
            self._room(self.walk.ffn, field, f"ffn.{name}", n, d)
        width = c.Linear.from_address(self.of_layer.ffn.up).d_out
        self._room(self.walk, "up", "ffn.up", n, width)
        self._room(self.walk, "inside", "ffn.inside", n, c.Linear.from_address(self.of_layer.ffn.down).d_in)

    def _plan_attention(self, to: Any, place: str, n: int) -> None:
        attention, name = getattr(self.of_layer, place), place.rstrip("_") + "_attn"
        keys = len(self.source) if place == "cross" else n
        for field, step in ENDS.items():
            self._room(to.ends, field, f"{name}.{step}", n, self.network.d_model)
        for field, rows in (("queries", n), ("keys", keys)):
            self._room(to, field, f"{name}.{field}", rows, attention.d_k)
            self._room(to, f"turned_{field}", f"{name}.rotated-{field}", rows, attention.d_k)
        self._room(to, "values", f"{name}.values", keys, attention.d_v)
        self._room(to, "scores", f"{name}.scores", n, keys)
        self._room(to, "weights", f"{name}.softmax", n, keys)
        self._room(to, "concat", f"{name}.concat", n, attention.heads * attention.d_v)

    def steps(self, d_k: int, d_v: int) -> dict[str, Floats]:
        """The values of the steps without padding; widths of a head before it."""
        found = dict(self.arrays)
        for place in self.places:
            attention, name = getattr(self.of_layer, place), place.rstrip("_") + "_attn"
            k, v = head_columns(d_k, *self._halves(place)), head_columns(d_v)
            for step in ("queries", "keys", "rotated-queries", "rotated-keys"):
                found[f"{name}.{step}"] = found[f"{name}.{step}"][:, k]
            found[f"{name}.rotated-queries"] = found[f"{name}.rotated-queries"] / np.float32(attention.scale)
            found[f"{name}.values"] = found[f"{name}.values"][:, v]
            heads = found[f"{name}.concat"].reshape(-1, attention.heads, attention.d_v)[:, :, v]
            found[f"{name}.concat"] = heads.reshape(len(heads), -1)
            found[f"{name}.weighted-sum"] = heads[:, self.head]
            found[f"{name}.softmax"][np.isinf(found[f"{name}.softmax"])] = 0  # masked keys have no weight
        d_ff = found["ffn.inside"].shape[1]
        gates, found["ffn.up"] = np.split(found["ffn.up"], [found["ffn.up"].shape[1] - d_ff], 1)
        return found | {"ffn.gate": gates} if gates.size else found

    def _halves(self, place: str) -> tuple[int, ...]:
        pairs = len(self.network._shape.rotary) if place == "self_" else 0
        return (pairs, pairs) if pairs else ()


class Dequantised(Linear):
    """A layer of float32 with weights rounded to 8 bits, as `headwise_dequantised` of web.c makes it."""

    def __init__(self, weight: Floats, bias: Floats | None, numbers: str, *arguments: Any, memory: Any = None) -> None:
        assert numbers == "int8"
        memory = arguments[1] if len(arguments) > 1 else memory
        rounded, levels = Linear(weight, None, numbers), np.empty(weight.shape, np.int8)
        scales = np.empty(len(weight), np.float32)
        c.needed().headwise_quantised_weights(rounded.address, at(levels), at(scales))
        super().__init__(scales[:, None] * levels, bias, "float32", memory=memory)

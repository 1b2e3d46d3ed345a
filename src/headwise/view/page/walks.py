"""The walks of a page as JSON: what all steps have in common once, and their numbers in one block.

```
{"figure": {"encoder": {"layers", "heads", "blocks", "norm", "positions", "causal", "output"}, "decoder": ...},
 "axes": {"src": tokens, "tgt": tokens, "vocabulary": tokens},
 "kinds": [{"id", "place", "text", "formula", "operation", "settings", "operands", "rows", "columns"}],
 "steps": [{"kind", "layer", "head", "values", "weight", "bias", "predictions"}],
 "walks": [{"stack", "layer", "head", "steps"}],
 "numbers": {"type", "data"},
 "note": ""}
```

Texts are keys of the catalogues: `text` of the name and sentence of a step, `note` of what the page lacks.
`rows` and `columns` name an axis. `kind` and `steps` are indices. Arrays are `{"at": n, "shape": [...]}`, row by row
from number n of the block: float16 or float32, little-endian, deflated, in base64. `predictions` is null or
`[{"candidates": [[token, log_prob]], "totals": numbers}]`, one for each row.
"""

import base64
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from headwise.view.record import Prediction, StackFigure, WalkRecord, WalkStep

LARGEST_PAGE = 1_400_000  # characters that the numbers of all walks may take in a page: a megabyte in base64
LARGEST_WEIGHTS = 1_000_000  # numbers in the projections of one walk that the explorer sends
ELSEWHERE_IN_WALKS = ("input", "top", "memory")  # steps whose values are those of a step of another walk, too
CHARACTERS = 2 * 4 / 3  # of a float16 in base64


def all_walks(record: WalkRecord, full: bool = False) -> dict[str, Any]:
    """The walks through every layer and head, or a selection if those were too large; `note` then says which.

    With `full`, every layer and head however large; the weights of projections still only if all fits.
    """
    firsts = {stack: record.steps(stack, 0, 0) for stack in record.figure}
    for layers, heads, weights, note in (
        (True, True, True, ""),
        (True, True, False, ""),
        (False, True, True, "layer-0"),
        (False, True, False, "layer-0"),
        (False, False, False, "head-0"),
    ):
        large = _size(record, firsts, layers, heads, weights) * CHARACTERS > LARGEST_PAGE
        if large and not (full and not weights):
            continue
        walks = _Walks(0 if weights else -1)
        for stack, figure in record.figure.items():
            for layer, n_heads in enumerate(figure.heads if layers else figure.heads[:1]):
                for head in range(n_heads if heads else 1):
                    walks.add(stack, layer, head, record.steps(stack, layer, head))
        return walks.contents(record, "float16", note)
    return _Walks(-1).contents(record, "float16", "none")


def one_walk(record: WalkRecord, stack: str, layer: int, head: int) -> dict[str, Any]:
    """One walk, in float32, with the weights of projections if they are not too many."""
    steps, walks = record.steps(stack, layer, head), _Walks(layer)
    if sum(step.weight.size for step in steps if step.weight is not None) > LARGEST_WEIGHTS:
        walks.layer_with_weights = -1
    walks.add(stack or next(iter(record.figure)), layer, head, steps)
    return walks.contents(record, "float32", "")


def figure_contents(figure: Mapping[str, StackFigure]) -> dict[str, Any]:
    """The figure as JSON."""
    return {name: {"layers": len(stack.heads), **asdict(stack)} for name, stack in figure.items()}


def _size(
    record: WalkRecord, firsts: Mapping[str, Sequence[WalkStep]], layers: bool, heads: bool, weights: bool
) -> int:
    """Numbers of a selection of walks, from those of layer 0 and head 0; with `weights`, those of layer 0."""
    total = 0
    for stack, steps in firsts.items():
        counts = record.figure[stack].heads if layers else record.figure[stack].heads[:1]
        for step in steps:
            if step.id in ELSEWHERE_IN_WALKS or step.operation == "same":
                continue
            n_heads = (lambda n: n if heads else 1) if step.head is not None else lambda _: 1
            times = 1 if step.layer is None else sum(map(n_heads, counts))
            vectors = [one for one in (step.weight, step.bias) if one is not None and one.ndim == 1]
            total += times * (step.values.size + sum(one.size for one in vectors))
            total += math.ceil(len(json.dumps(_predictions(step.predictions))) / CHARACTERS)
            if weights and step.weight is not None and step.weight.ndim == 2:
                total += step.weight.size * n_heads(counts[0])
    return total


@dataclass
class _Walks:
    """Collects walks; steps that several have in common are kept once."""

    layer_with_weights: int  # projections of this layer, and those outside of layers, keep their weights; -1: none
    kinds: dict[str, int] = field(default_factory=dict)  # as JSON
    steps: list[dict[str, Any]] = field(default_factory=list)
    walks: list[dict[str, Any]] = field(default_factory=list)
    arrays: list[np.ndarray] = field(default_factory=list)
    axes: dict[str, list[str]] = field(default_factory=dict)
    _known: dict[tuple[Any, ...], int] = field(default_factory=dict)
    _places: dict[bytes, int] = field(default_factory=dict)
    _length: int = 0

    def add(self, stack: str, layer: int, head: int, steps: Sequence[WalkStep]) -> None:
        """One more walk."""
        found = []
        for step in steps:
            key = (stack, step.id, step.layer, step.head)
            if key not in self._known:
                self._known[key] = len(self.steps)
                self.steps.append(self._step(stack, step))
            found.append(self._known[key])
        self.walks.append({"stack": stack, "layer": layer, "head": head, "steps": found})

    def _step(self, stack: str, step: WalkStep) -> dict[str, Any]:
        weights = self.layer_with_weights >= 0 and step.layer in (None, self.layer_with_weights)
        kept = step.weight is not None and (weights or step.weight.ndim == 1)
        return {
            "kind": self._kind(stack, step),
            "layer": step.layer,
            "head": step.head,
            "values": self._array(step.values),
            "weight": self._array(step.weight) if kept else None,
            "bias": self._array(step.bias),
            "predictions": _predictions(step.predictions),
        }

    def _kind(self, stack: str, step: WalkStep) -> int:
        names = ("id", "place", "text", "formula", "operation", "settings", "operands")
        own = "src" if stack == "encoder" else "tgt"
        source = step.id in ("memory", "cross_attn.keys", "cross_attn.values")
        rows, columns = "src" if source else own, ""
        if step.columns:
            attention = "src" if step.place == "cross_attn" else own
            columns = "vocabulary" if step.place == "output" else attention
        kind = {name: getattr(step, name) for name in names} | {"rows": rows, "columns": columns}
        self.axes[rows] = list(step.rows)
        if columns:
            self.axes[columns] = list(step.columns)
        return self.kinds.setdefault(json.dumps(kind), len(self.kinds))

    def _array(self, values: np.ndarray | None) -> dict[str, Any] | None:
        if values is None:
            return None
        key = values.tobytes()
        if key not in self._places:  # equal values, such as those of `input`, are kept once
            self._places[key] = self._length
            self.arrays.append(values)
            self._length += values.size
        return {"at": self._places[key], "shape": list(values.shape)}

    def contents(self, record: WalkRecord, kind: str, note: str) -> dict[str, Any]:
        """The JSON."""
        numbers = np.concatenate([array.ravel() for array in self.arrays]) if self.arrays else np.zeros(0)
        most = float(np.finfo(kind).max)  # infinite is masked, not large
        numbers = np.where(np.isinf(numbers), numbers, np.clip(numbers, -most, most))
        packed = zlib.compress(numbers.astype("<f2" if kind == "float16" else "<f4").tobytes(), 9)
        return {
            "figure": figure_contents(record.figure),
            "axes": self.axes,
            "kinds": [json.loads(one) for one in self.kinds],
            "steps": self.steps,
            "walks": self.walks,
            "numbers": {"type": kind, "data": base64.b64encode(packed).decode("ascii")},
            "note": note,
        }


def _predictions(predictions: Sequence[Prediction]) -> list[dict[str, Any]] | None:
    """As JSON, with the digits of a float32."""
    return [
        {
            "candidates": [[one.piece, float(f"{one.log_prob:.8g}")] for one in prediction.candidates],
            "totals": [float(f"{total:.8g}") for total in prediction.totals],
        }
        for prediction in predictions
    ] or None

"""Tables of names: which tensor of a Hugging Face file is which of ours, readable in both directions.

An entry is `"name in the file": "our name"`, without `.weight` and `.bias` where both go the same way; `{i}` is the
number of a layer. Marks before our name say how the tensor is written there, `|` between several of ours that they
are one behind the other in it:

- `^`  transposed (GPT-2's `Conv1D`)
- `%`  head by head: the first head of each part, then the second of each (GPT-NeoX)
- `+`  with a leading axis of one

Not here: files (`headwise.checkpoint`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwise.network.config import NetworkConfig

TensorShape = tuple[int, ...]


@dataclass(frozen=True)
class Entry:
    """One tensor of a file and those of ours it holds."""

    key: str  # in the file
    names: Sequence[str]  # ours
    marks: str
    n_heads: int  # of the stack, for `%`

    def file_shape(self, shapes: Mapping[str, TensorShape]) -> TensorShape:
        """The shape the tensor must have in the file, given those of ours."""
        first, *rest = shapes[self.names[0]]
        shape = (first * len(self.names), *rest)
        if "^" in self.marks:
            shape = shape[::-1]
        return (1, *shape) if "+" in self.marks else shape

    def to_own(self, tensor: Any) -> dict[str, Any]:
        """Our tensors from that of the file, a torch tensor or a numpy array; views where possible."""
        if "+" in self.marks:
            tensor = tensor[0]
        if "^" in self.marks and len(tensor.shape) > 1:
            tensor = tensor.T
        n, rest = len(self.names), tuple(tensor.shape[1:])
        if "%" in self.marks:
            by_head = tensor.reshape(self.n_heads, n, -1, *rest)
            parts = [by_head[:, i].reshape(-1, *rest) for i in range(n)]
        else:
            size = len(tensor) // n
            parts = [tensor[i * size : (i + 1) * size] for i in range(n)]
        return dict(zip(self.names, parts, strict=True))


def entries(table: Mapping[str, str], config: NetworkConfig, shapes: Mapping[str, TensorShape]) -> list[Entry]:
    """The table written out for a network: one entry for each tensor of its file.

    `shapes` are those of the network's parameters; every one of them must have its place.
    """
    found = [entry for key, ours in table.items() for entry in _expand(key, ours, config, shapes)]
    placed = [name for entry in found for name in entry.names]
    assert sorted(placed) == sorted(shapes), f"the table misses {sorted(set(shapes) ^ set(placed))}"
    return found


def _expand(key: str, ours: str, config: NetworkConfig, shapes: Mapping[str, TensorShape]) -> Iterator[Entry]:
    names = ours.lstrip("^%+")
    marks = ours[: len(ours) - len(names)]
    stack = config.decoder if names.startswith("decoder.") else config.encoder
    for i in range(stack.n_layers if stack and "{i}" in key else 1):
        for suffix in ("", ".weight", ".bias"):
            wanted = [name.replace("{i}", str(i)) + suffix for name in names.split("|")]
            if all(name in shapes for name in wanted):
                yield Entry(key.replace("{i}", str(i)) + suffix, wanted, marks, stack.n_heads if stack else 1)

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

import torch
from torch import Tensor

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

    def to_own(self, tensor: Tensor) -> dict[str, Tensor]:
        """Ours, out of the file's; views of it wherever that is possible."""
        if "+" in self.marks:
            tensor = tensor[0]
        if "^" in self.marks:
            tensor = tensor.t()  # which leaves vectors alone
        if "%" in self.marks:
            by_head = tensor.unflatten(0, (self.n_heads, len(self.names), -1))
            parts = [by_head[:, i].flatten(0, 1) for i in range(len(self.names))]
        else:
            parts = tensor.chunk(len(self.names))
        return dict(zip(self.names, parts, strict=True))

    def to_file(self, own: Mapping[str, Tensor]) -> Tensor:
        """The file's, out of ours."""
        parts = [own[name] for name in self.names]
        if "%" in self.marks:
            tensor = torch.stack([part.unflatten(0, (self.n_heads, -1)) for part in parts], 1).flatten(0, 2)
        else:
            tensor = torch.cat(parts) if len(parts) > 1 else parts[0]
        if "^" in self.marks:
            tensor = tensor.t()
        return (tensor.unsqueeze(0) if "+" in self.marks else tensor).contiguous()


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

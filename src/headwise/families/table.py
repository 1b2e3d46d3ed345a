"""Tables that map the tensors of a Hugging Face file to our parameters.

An entry is `"name in the file": "our name"`, without `.weight` and `.bias`; `{i}` is the number of a layer. `|`
separates names of parameters that are concatenated in the file. Prefixes of our name describe the format in the file:

- `^`  transposed (GPT-2's `Conv1D`)
- `%`  interleaved by head: the first head of each part, then the second of each (GPT-NeoX)
- `+`  with a leading axis of one
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwise.config.network import NetworkConfig

TensorShape = tuple[int, ...]


@dataclass(frozen=True)
class Entry:
    """A tensor of a file and the parameters that it holds."""

    key: str  # in the file
    names: Sequence[str]  # ours
    marks: str
    n_heads: int  # of the stack, for `%`

    def file_shape(self, shapes: Mapping[str, TensorShape]) -> TensorShape:
        """The shape of the tensor in the file, from the shapes of our parameters."""
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
    """The entries for all tensors of a network's file.

    `shapes` are those of the network's parameters; the table must cover all of them.
    """
    result = [entry for key, ours in table.items() for entry in _expand(key, ours, config, shapes)]
    covered = [name for entry in result for name in entry.names]
    assert sorted(covered) == sorted(shapes), f"the table misses {sorted(set(shapes) ^ set(covered))}"
    return result


def _expand(key: str, ours: str, config: NetworkConfig, shapes: Mapping[str, TensorShape]) -> Iterator[Entry]:
    names = ours.lstrip("^%+")
    marks = ours[: len(ours) - len(names)]
    stack = config.decoder if names.startswith("decoder.") else config.encoder
    for i in range(stack.n_layers if stack and "{i}" in key else 1):
        for suffix in ("", ".weight", ".bias"):
            wanted = [name.replace("{i}", str(i)) + suffix for name in names.split("|")]
            if all(name in shapes for name in wanted):
                yield Entry(key.replace("{i}", str(i)) + suffix, wanted, marks, stack.n_heads if stack else 1)

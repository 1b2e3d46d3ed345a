"""Sequential operations and path lengths of Table 1, counted on the autograd graph; they depend on no device.

Autograd keeps a node for every operation of a forward pass, linked to those that it was computed from. The longest
chain of such nodes is the number of operations that must wait for one another, however many could run at once. The
shortest chain from an output to an input is the path that a signal takes between two positions. As in the paper, a
matrix product or a softmax is one operation, whatever its size. Operations that move or reshape numbers count nothing.
"""

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

# Nodes that compute nothing. AccumulateGrad stands for an input or a parameter.
FREE = re.compile(
    r"^(AccumulateGrad|View|UnsafeView|Reshape|Transpose|T\d|Permute|Expand|Unsqueeze|Squeeze|Slice|Select|"
    r"IndexSelect|Split|UnsafeSplit|SplitWithSizes|Unbind|Chunk|Stack|Cat|Clone|Copy|Alias|Unfold|ToCopy|AsStrided|"
    r"Gather|Index|ConstantPadNd|Repeat|Flip|PackPadded)"
)


def is_operation(node: Any) -> bool:
    """Whether a node of the graph computes something."""
    return FREE.match(node.name().rpartition("::")[2]) is None


def parents(node: Any) -> list[Any]:
    """The nodes that `node` was computed from."""
    return [parent for parent, _ in node.next_functions if parent is not None]


def longest_chain(output: Tensor) -> int:
    """The largest number of operations on a path from `output` to a leaf: they must run one after another.

    >>> x = torch.ones(3, requires_grad=True)
    >>> longest_chain((x * 2 + x).exp().sum())
    4
    """
    return max((chain for _, chain in _chains(output.grad_fn)), default=0)


def _chains(root: Any) -> Iterator[tuple[Any, int]]:
    """Every node with its longest chain to a leaf, parents first; without recursion, for long graphs."""
    chain: dict[Any, int] = {}
    waiting = [(root, False)] if root is not None else []
    while waiting:
        node, ready = waiting.pop()
        if node in chain:
            continue
        if ready:
            chain[node] = is_operation(node) + max((chain[parent] for parent in parents(node)), default=0)
            yield node, chain[node]
        else:
            waiting.append((node, True))
            waiting += [(parent, False) for parent in parents(node) if parent not in chain]


def shortest_path(output: Tensor, source: Tensor) -> int | None:
    """The smallest number of operations on a path from `output` to the leaf `source`; None if there is none.

    >>> x = torch.ones(3, requires_grad=True)
    >>> shortest_path((x * 2 + x).exp().sum(), x)
    3
    """
    reached, level, length = set[Any](), [output.grad_fn], 0
    while level:
        level, deeper = _free_closure(level, reached)
        if any(getattr(node, "variable", None) is source for node in level):
            return length
        level, length = deeper, length + 1
    return None


def _free_closure(starts: Sequence[Any], reached: set[Any]) -> tuple[list[Any], list[Any]]:
    """What can be reached from `starts` without running an operation, and the nodes that are one operation further."""
    waiting, here, further = list(starts), list[Any](), list[Any]()
    while waiting:
        node = waiting.pop()
        if node is None or node in reached:
            continue
        reached.add(node)
        here.append(node)
        (further if is_operation(node) else waiting).extend(parents(node))
    return here, further


@contextmanager
def every_operation() -> Iterator[None]:
    """Within it torch runs recurrent layers step by step, instead of hiding the loop in one fused node."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about other devices
        with torch.backends.mkldnn.flags(enabled=False), torch.backends.cudnn.flags(enabled=False):
            yield


def count_chain(compute: Callable[[], Tensor]) -> int:
    """`longest_chain` of what `compute` returns, with recurrent layers step by step."""
    with every_operation():
        return longest_chain(compute())

"""Claim: Table 1 of the paper, by counting on the autograd graph: sequential operations and path lengths."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headwise.core.attention import MultiHeadAttention
from headwise.evaluate.pages.figures import Figure, Panel, Series
from headwise.lab.study.claim import ONCE, Claim, Plan, column, distinct, fit_column, select_rows, series
from headwise.lab.study.graph import count_chain, every_operation, shortest_path
from headwise.lab.study.layer_cost import CONVOLUTION, EXPLICIT, RECURRENT, Layer
from headwise.lab.study.statement import NoRows, Row, Statement, exact

ATTENTION, RECURRENCE, CONTIGUOUS, DILATED, RESTRICTED = (
    "self-attention",
    "recurrent",
    "convolution",
    "dilated convolution",
    "restricted self-attention",
)
LAYERS = {ATTENTION: EXPLICIT, RECURRENCE: RECURRENT, CONTIGUOUS: CONVOLUTION}  # with sequential operations to count
CONSTANT = 0.1  # a smaller exponent is O(1)
LINEAR = 0.9  # a larger exponent is O(n)
NEAR = 0.05  # of an exact slope
WIDTH = 8  # of the layers; counts do not depend on it

Positions = list[Tensor]  # (1, width), one for each position


@dataclass(frozen=True)
class Condition:
    """One kind of layer over `n` positions."""

    kind: str
    n: int
    k: int  # kernel width, or neighbourhood of restricted attention; 0 = none


def conditions(plan: Plan) -> list[Condition]:
    """Powers of the kernel width, so that a dilated stack spans them exactly."""
    lengths = plan.pick((9, 27, 81), (9, 27, 81, 243, 729))
    spanned = lengths[:4] if plan.scale == "full" else lengths[:3]  # by stacks of many layers
    windows = [Condition(kind, n, 3) for kind in (CONTIGUOUS, RESTRICTED) for n in spanned]
    windows += [Condition(DILATED, n, 3) for n in lengths]
    windows += [Condition(kind, 81, k) for kind in (CONTIGUOUS, RESTRICTED) for k in (5, 9)]
    windows += [Condition(DILATED, 5**m, 5) for m in (1, 2, 3)] + [Condition(DILATED, 9**m, 9) for m in (1, 2)]
    return [*(Condition(kind, n, 0) for kind in (ATTENTION, RECURRENCE) for n in lengths), *windows]


def measure(condition: Condition, seed: int) -> list[Row]:
    """The longest chain of operations of one layer, and the shortest path from the last position to the first."""
    c = condition
    inputs = [torch.randn(1, WIDTH, requires_grad=True) for _ in range(c.n)]
    with every_operation():
        output, layers = last_output(c, inputs)
        path = shortest_path(output, inputs[0])
    assert path is not None, "the stack has as many layers as it takes"
    return [{"path": path, "layers": layers, "chain": sequential_operations(c)}]


def sequential_operations(c: Condition) -> int:
    """The longest chain of one layer; 0 for kinds whose layer is one of the others, restricted."""
    if c.kind not in LAYERS:
        return 0
    layer, x = Layer(LAYERS[c.kind], WIDTH), torch.randn(1, c.n, WIDTH)
    return count_chain(lambda: layer(x))


def last_output(c: Condition, inputs: Positions) -> tuple[Tensor, int]:
    """The output at the last position of as many layers as connect it with the first, and their number.

    Every position has its own tensors, so the graph knows what each of them was computed from.
    """
    if c.kind == ATTENTION:
        attention = MultiHeadAttention(WIDTH, 1, WIDTH, WIDTH)
        return attention(inputs[-1][None], torch.stack(inputs, 1), None), 1
    if c.kind == RECURRENCE:
        return recurrent_state(inputs), 1
    layers = layers_to_span(c)
    return windowed_output(c, layers, inputs), layers


def recurrent_state(inputs: Positions) -> Tensor:
    """The last state of a tanh cell (Elman 1990), the shortest of recurrent paths."""
    cell = nn.RNNCell(WIDTH, WIDTH)
    state = torch.zeros(1, WIDTH)
    for x in inputs:
        state = cell(x, state)
    return state


def layers_to_span(c: Condition) -> int:
    """Layers of a causal stack whose last output depends on the first of `n` positions.

    >>> layers_to_span(Condition(CONTIGUOUS, 81, 3)), layers_to_span(Condition(DILATED, 81, 3))
    (40, 4)
    """
    if c.kind == DILATED:
        return next(layers for layers in range(1, c.n + 1) if c.k**layers >= c.n)
    return math.ceil((c.n - 1) / (c.k - 1))


def windowed_output(c: Condition, layers: int, inputs: Positions) -> Tensor:
    """The last output of a causal stack whose layers see `k` positions, `dilation` apart; before the first are none."""
    mix = [_mixing(c) for _ in range(layers)]

    @cache
    def state(layer: int, position: int) -> Tensor:
        if layer == 0:
            return inputs[position]
        step = c.k ** (layer - 1) if c.kind == DILATED else 1
        seen = [place for place in range(position - (c.k - 1) * step, position + 1, step) if place >= 0]
        return mix[layer - 1]([state(layer - 1, place) for place in seen])

    for layer in range(layers):  # from the bottom, so that no recursion is deep
        for position in range(c.n if c.kind != DILATED else 0):
            state(layer, position)
    return state(layers, c.n - 1)


def _mixing(c: Condition) -> Callable[[Positions], Tensor]:
    """One layer at one position: a convolution over its window, or attention from its last position to all of it."""
    if c.kind == RESTRICTED:
        attention = MultiHeadAttention(WIDTH, 1, WIDTH, WIDTH)
        return lambda window: attention(window[-1][None], torch.stack(window, 1), None)[0]
    kernel = nn.Conv1d(WIDTH, WIDTH, c.k)
    nothing = torch.zeros(1, WIDTH)
    return lambda window: kernel(torch.stack([*[nothing] * (c.k - len(window)), *window], 2))[:, :, 0]


def figures(rows: Sequence[Row]) -> list[Figure]:
    """Counts against length."""
    x = "sequence length n (positions)"
    chains = [series(select_rows(rows, kind=kind), kind, "n", "chain") for kind in LAYERS]
    narrow = [row for row in rows if row["k"] in (0, 3)]
    paths = [series(select_rows(narrow, kind=kind), kind, "n", "path") for kind in distinct(rows, "kind")]
    return [
        Figure(
            "operations",
            "Counted on the autograd graph. Left: operations of one layer that must wait for one another. Right: "
            "operations on the shortest path from the last position to the first (windows of 3 positions).",
            "Line charts of sequential operations and of path lengths against sequence length: recurrence and "
            "convolution rise in a line, dilated convolution by its logarithm, attention stays level.",
            [
                Panel("Sequential operations of a layer", x, "longest chain (operations)", _shown(chains), log_y=True),
                Panel("Path between the ends", x, "shortest path (operations)", _shown(paths), log_y=True),
            ],
        )
    ]


def _shown(lines: Sequence[Series]) -> list[Series]:
    return [line for line in lines if line.x]


def count_exponent(kind: str, key: str, x: str = "n", **wanted: int) -> Callable[[Sequence[Row]], float]:
    """The exponent of a count by `n`, or by the kernel width less 1, of a kind of layer."""

    def fit(rows: Sequence[Row]) -> float:
        chosen = [{**row, "reach": row["k"] - 1} for row in select_rows(rows, kind=kind, **wanted)]
        if len(distinct(chosen, x)) < 3:
            raise NoRows(f"{kind} at fewer than three values of {x}")
        return fit_column(chosen, x, key).exponent.value

    return fit


def operations_per_factor(rows: Sequence[Row]) -> float:
    """The slope of a dilated stack's path by log_k n, least squares over all kernel widths."""
    chosen = select_rows(rows, kind=DILATED)
    logarithms = np.log(column(chosen, "n")) / np.log(column(chosen, "k"))
    return float(np.polyfit(logarithms, column(chosen, "path"), 1)[0])


def _grows(name: str, text: str, kind: str, key: str, linear: bool) -> Statement:
    bound: dict[str, Any] = {"above": LINEAR} if linear else {"below": CONSTANT}
    counted = "longest chain" if key == "chain" else "shortest path"
    windowed = kind in (CONTIGUOUS, RESTRICTED) and key == "path"
    value = count_exponent(kind, key, k=3) if windowed else count_exponent(kind, key)
    return Statement(name, text, f"exponent of the {counted} by n (operations)", exact(value), **bound)


STATEMENTS = (
    _grows("chain-attention", "A self-attention layer has O(1) sequential operations.", ATTENTION, "chain", False),
    _grows("chain-recurrent", "A recurrent layer has O(n) sequential operations.", RECURRENCE, "chain", True),
    _grows("chain-convolution", "A convolution has O(1) sequential operations.", CONTIGUOUS, "chain", False),
    _grows("path-attention", "Self-attention has paths of O(1).", ATTENTION, "path", False),
    _grows("path-recurrent", "Recurrence has paths of O(n).", RECURRENCE, "path", True),
    _grows("path-convolution", "Contiguous convolutions have paths that grow with n.", CONTIGUOUS, "path", True),
    Statement(
        "path-kernel",
        "Contiguous convolutions have paths that shrink with the kernel width: O(n / k).",
        "exponent of the shortest path by k - 1 at n = 81",
        exact(count_exponent(CONTIGUOUS, "path", "reach", n=81)),
        above=-1 - NEAR,
        below=-1 + NEAR,
    ),
    Statement(
        "path-dilated",
        "Dilated convolutions have paths of O(log_k n).",
        "operations on the shortest path for each factor k of n",
        exact(operations_per_factor),
        above=1 - NEAR,
        below=1 + NEAR,
    ),
    _grows("path-restricted", "Restricted self-attention has paths that grow with n.", RESTRICTED, "path", True),
    Statement(
        "path-neighbourhood",
        "Restricted self-attention has paths that shrink with the neighbourhood: O(n / r).",
        "exponent of the shortest path by r - 1 at n = 81",
        exact(count_exponent(RESTRICTED, "path", "reach", n=81)),
        above=-1 - NEAR,
        below=-1 + NEAR,
    ),
)

CLAIM = Claim(
    name="operations",
    sentence="Self-attention connects all positions with a constant number of sequentially executed operations, "
    "whereas a recurrent layer requires O(n); convolutions need a stack of O(n/k) layers, or O(log_k n) if dilated.",
    source="Vaswani et al. 2017, arXiv:1706.03762, section 4 and Table 1",
    method="Autograd records which operation was computed from which. The longest chain of one layer over n positions "
    "is the number of its sequential operations. The shortest chain from the last output to the first input, in a "
    "stack that just connects them, is the path length. Counts are exact and the same on every device.",
    conditions=conditions,
    measure=measure,
    figures=figures,
    statements=STATEMENTS,
    cost=1.0,
    looks=ONCE,
)

"""Claim: convolutions see only as far as their receptive field, so reaching far takes many layers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.core.attention import MultiHeadAttention
from headwise.evaluate.pages.figures import Figure, Panel
from headwise.lab.study.claim import Claim, Plan, distinct, fit_column, mean_of, select_rows, series
from headwise.lab.study.statement import Looks, Row, Statement, exact

WIDTH = 16  # channels
ROUNDING = 0.01  # in deep stacks the influence of the outermost positions is lost in float64
FEW = 0.5  # a stack that needs at most this share of the layers of another needs few
KINDS = ("convolution", "dilated convolution", "self-attention")


@dataclass(frozen=True)
class Condition:
    """A stack of one kind of layer; kernel 0 for attention, which has none."""

    kind: str
    kernel: int
    layers: int
    length: int  # positions of the sequence


def conditions(plan: Plan) -> list[Condition]:
    """Layers and kernel widths, with a dilated stack and attention for comparison."""
    depths = plan.pick([1, 2], [*range(1, 9), 16])
    kernels = plan.pick([3], [3, 5, 9, 15])
    length = plan.pick(33, 257)
    plain = [Condition("convolution", kernel, layers, length) for kernel in kernels for layers in depths]
    dilated = [Condition("dilated convolution", 3, layers, length) for layers in depths]
    return [*plain, *dilated, *(Condition("self-attention", 0, layers, length) for layers in depths)]


def formula(kind: str, kernel: int, layers: int, length: int) -> int:
    """Positions a middle output can see: 1 + layers (k - 1); with dilation 1, 2, 4 ... 1 + (2^layers - 1) (k - 1).

    >>> formula("convolution", 3, 4, 99), formula("dilated convolution", 3, 4, 99), formula("self-attention", 0, 1, 99)
    (9, 31, 99)
    """
    if kind == "self-attention":
        return length
    reach = layers if kind == "convolution" else 2**layers - 1
    return min(length, 1 + reach * (kernel - 1))


class Convolutions(nn.Module):
    """Gated convolutions with residuals, as in ConvS2S (arXiv:1705.03122), without its attention."""

    def __init__(self, kernel: int, layers: int, dilated: bool) -> None:
        super().__init__()
        steps = [2**i if dilated else 1 for i in range(layers)]
        self.layers = nn.ModuleList(
            nn.Conv1d(WIDTH, 2 * WIDTH, kernel, dilation=step, padding=step * (kernel - 1) // 2) for step in steps
        )

    def forward(self, x: Float[Tensor, "batch length width"]) -> Float[Tensor, "batch length width"]:
        """Same shape in and out."""
        for layer in self.layers:
            x = x + F.glu(layer(x.transpose(1, 2)), dim=1).transpose(1, 2)
        return x


class Attentions(nn.Module):
    """Self-attention with residuals."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(MultiHeadAttention(WIDTH, 2, WIDTH // 2, WIDTH // 2) for _ in range(layers))

    def forward(self, x: Float[Tensor, "batch length width"]) -> Float[Tensor, "batch length width"]:
        """Same shape in and out."""
        for layer in self.layers:
            x = x + layer(x, x, None)
        return x


def measure(condition: Condition, seed: int) -> list[Row]:
    """The number of positions that each change the middle output, compared with the formula."""
    c = condition
    stack = (
        Attentions(c.layers) if c.kind == "self-attention" else Convolutions(c.kernel, c.layers, "dilated" in c.kind)
    )
    seen = receptive_field(stack.double(), c.length)  # in double precision, to detect a small influence
    return [{"seen": seen, "formula": formula(c.kind, c.kernel, c.layers, c.length)}]


@torch.no_grad()
def receptive_field(stack: nn.Module, length: int) -> int:
    """Positions whose change alters the middle output of `stack`."""
    x = torch.randn(1, length, WIDTH, dtype=torch.float64)
    before = stack(x)[0, length // 2]
    changed = x.repeat(length, 1, 1)
    changed[range(length), range(length)] += 1.0  # row i differs at position i
    after = torch.cat([stack(part)[:, length // 2] for part in changed.split(64)])
    return int((after != before).any(1).sum())


def figures(rows: Sequence[Row]) -> list[Figure]:
    """Receptive field against depth."""
    lines = [
        series(
            select_rows(rows, kind=kind, kernel=kernel),
            kind if kind == "self-attention" else f"{kind}, k = {kernel}",
            "layers",
            "seen",
        )
        for kind in KINDS
        for kernel in distinct(select_rows(rows, kind=kind), "kernel")
    ]
    return [
        Figure(
            "receptive-field",
            "Positions that reach the middle output, counted by changing one at a time.",
            "Line chart of receptive field against layers: convolutions rise in a line, dilated ones double, "
            "attention sees the whole sequence from the first layer on.",
            [Panel("Receptive field", "layers", "positions seen", lines, log_y=True)],
        )
    ]


def worst_error(rows: Sequence[Row]) -> float:
    """The largest difference between the positions seen and the formula, as a share of the formula."""
    convolutions = [row for row in rows if row["kind"] != "self-attention"]
    return max(abs(row["seen"] - row["formula"]) / row["formula"] for row in convolutions)


def growth_by_layers(rows: Sequence[Row], kind: str) -> float:
    """Exponent of the positions seen beyond the first by layers, with the narrowest kernel."""
    chosen = [{**row, "reach": row["seen"] - 1} for row in select_rows(rows, kind=kind, kernel=3)]
    inside = [row for row in chosen if row["seen"] < row["length"]]
    return fit_column(inside, "layers", "reach").exponent.value if len(inside) > 2 else _two_points(inside)


def _two_points(rows: Sequence[Row]) -> float:
    first, last = rows[0], rows[-1]
    return float(np.log(last["reach"] / first["reach"]) / np.log(last["layers"] / first["layers"]))


def layers_ratio(rows: Sequence[Row]) -> float:
    """Layers that a dilated stack needs for what the deepest plain one with the same kernel sees, as a share of its."""
    plain = max(select_rows(rows, kind="convolution", kernel=3), key=lambda row: row["layers"])
    enough = [row["layers"] for row in select_rows(rows, kind="dilated convolution") if row["seen"] >= plain["seen"]]
    return min(enough) / plain["layers"]


STATEMENTS = (
    Statement(
        "formula",
        "A stack of convolutions sees 1 + layers x (kernel - 1) positions, and no more.",
        "largest difference between counted positions and the formula, as a share",
        exact(worst_error),
        below=ROUNDING,
    ),
    Statement(
        "many-layers",
        "Reaching far takes many layers: what a stack sees beyond one position is proportional to its depth.",
        "exponent of positions seen by layers",
        exact(lambda rows: growth_by_layers(rows, "convolution")),
        below=1.1,
    ),
    Statement(
        "dilated-too",
        "Even with dilation, reaching far takes many layers: more than half as many.",
        "layers of a dilated stack / layers of a plain one that sees no more",
        exact(layers_ratio),
        above=FEW,
    ),
    Statement(
        "attention",
        "One layer of self-attention sees every position.",
        "share of the positions that one layer sees",
        exact(lambda rows: mean_of(rows, "seen", kind="self-attention", layers=1) / rows[0]["length"]),
        above=0.999,
    ),
)

CLAIM = Claim(
    name="receptive-field",
    sentence="Convolutions have a limited receptive field: reaching far takes many layers.",
    source="Vaswani et al. 2017, arXiv:1706.03762, section 4; Gehring et al. 2017, arXiv:1705.03122",
    method="In a random stack of layers each input position is changed alone; those that alter the output in the "
    "middle are counted and compared with the formula 1 + layers x (kernel - 1). A stack whose dilation doubles from "
    "layer to layer (the logarithm in the paper's Table 1) and self-attention are counted alike.",
    conditions=conditions,
    measure=measure,
    figures=figures,
    statements=STATEMENTS,
    cost=1.0,
    looks=Looks(3, 3),
)

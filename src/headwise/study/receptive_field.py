"""Claim: convolutions see only as far as their receptive field, so reaching far takes many layers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.network.attention import MultiHeadAttention
from headwise.report.figures import Figure, Panel
from headwise.study.claim import Claim, Plan, Row, Verdict, distinct, select_rows, series

WIDTH = 16  # channels
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
    depths = plan.pick([1, 2], [1, 2, 4, 8], [1, 2, 4, 8, 16])
    kernels = plan.pick([3], [3, 5, 9], [3, 5, 9, 15])
    length = plan.pick(33, 129, 257)
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


def judge(rows: Sequence[Row]) -> Verdict:
    """Held if convolutions see what the formula says and attention sees all; in part because dilation helps."""
    exact = all(row["seen"] == row["formula"] for row in rows)
    length = rows[0]["length"]
    attention = min(row["seen"] for row in select_rows(rows, kind="self-attention"))
    kernel = min(row["kernel"] for row in select_rows(rows, kind="convolution"))
    layers = math.ceil((length - 1) / (kernel - 1))
    dilated = math.ceil(math.log2((length - 1) / 2 + 1))
    if not exact or attention < length:
        worst = max(rows, key=lambda row: abs(row["seen"] - row["formula"]))
        return Verdict(
            "not held",
            f"{worst['layers']} layers of {worst['kind']} see {worst['seen']} positions, the formula says "
            f"{worst['formula']}.",
        )
    reason = (
        f"every stack sees exactly what the formula says: kernel {kernel} needs {layers} layers to span {length} "
        "positions where "
        f"one layer of attention does; but dilation, which the texts leave out, brings them down to {dilated}."
    )
    return Verdict("held in part" if dilated < layers / 4 else "held", reason)


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
    judge=judge,
    seeds={"toy": 1, "quick": 1, "full": 3},
    cost={"toy": 0.02, "quick": 0.2, "full": 1.0},
)

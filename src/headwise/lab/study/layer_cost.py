"""Claim: the cost of one layer by length n and width d (Table 1 of the paper), in time and memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headwise.core.attention import DotProduct, MultiHeadAttention, scaled_dot_product_attention
from headwise.core.masks import Mask
from headwise.evaluate.pages.figures import Figure, Panel
from headwise.lab.study.claim import Claim, Plan, distinct, growth, mean_of, select_rows, series_by
from headwise.lab.study.clock import kept_bytes, seconds
from headwise.lab.study.statement import Looks, NoRows, Row, Statement, over_seeds

EXPLICIT, FUSED, RECURRENT, CONVOLUTION = "attention, explicit", "attention, fused", "lstm", "conv"
KERNEL = 3  # of the convolution
SUPERLINEAR = 1.4  # an exponent of n above this is closer to n^2 than to n
SHORT = 4  # n = d / SHORT is "n < d"


@dataclass(frozen=True)
class Condition:
    """One layer on a batch of one sequence."""

    layer: str
    n: int  # positions
    d: int  # width
    device: str


def conditions(plan: Plan) -> list[Condition]:
    """All lengths for every width."""
    lengths = plan.pick([16, 32, 64], [64, 128, 256, 512, 1024, 2048, 4096])
    widths = plan.pick([16], [64, 256])
    layers = (EXPLICIT, FUSED, RECURRENT, CONVOLUTION)
    return [Condition(layer, n, d, plan.device) for d in widths for n in lengths for layer in layers]


class Explicit(DotProduct):
    """The formula of section 3.2.1 instead of the fused kernel."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        return scaled_dot_product_attention(q, k, v, mask)[0]


class Layer(nn.Module):
    """One layer with a common interface: (batch, n, d) in and out."""

    def __init__(self, kind: str, d: int) -> None:
        super().__init__()
        heads = max(1, d // 64)
        self.kind = kind
        self.inner: nn.Module = {
            EXPLICIT: lambda: MultiHeadAttention(d, heads, d // heads, d // heads, kernel=Explicit()),
            FUSED: lambda: MultiHeadAttention(d, heads, d // heads, d // heads),
            RECURRENT: lambda: nn.LSTM(d, d, batch_first=True),
            CONVOLUTION: lambda: nn.Conv1d(d, d, KERNEL, padding=KERNEL // 2),
        }[kind]()

    def forward(self, x: Tensor) -> Tensor:
        """Same shape in and out."""
        if self.kind == RECURRENT:
            return self.inner(x)[0]
        if self.kind == CONVOLUTION:
            return self.inner(x.transpose(1, 2)).transpose(1, 2)
        return self.inner(x, x, None)


def measure(condition: Condition, seed: int) -> list[Row]:
    """Time of forward and backward pass, and memory kept for the backward pass, without weights."""
    c = condition
    layer = Layer(c.layer, c.d).to(c.device)
    x = torch.randn(1, c.n, c.d, device=c.device, requires_grad=True)
    weights = sum(p.untyped_storage().nbytes() for p in layer.parameters())
    memory = max(kept_bytes(lambda: layer(x)) - weights, 4 * c.n * c.d)
    time = seconds(lambda: layer(x).sum().backward(), c.device, repeats=3)
    return [{"milliseconds": 1000 * time, "megabytes": memory / 1e6}]


def figures(rows: Sequence[Row]) -> list[Figure]:
    """Time at the smallest and the largest width, memory, and where the curves cross."""
    widths = sorted(distinct(rows, "d"))
    x = "sequence length n (positions)"
    time = {d: series_by(select_rows(rows, d=d), "layer", "n", "milliseconds") for d in (widths[0], widths[-1])}
    panels = [Panel(f"Time, d = {d}", x, "forward + backward (ms)", lines, log_y=True) for d, lines in time.items()]
    memory = series_by(select_rows(rows, d=widths[0]), "layer", "n", "megabytes")
    panels.append(Panel(f"Memory, d = {widths[0]}", x, "kept for the backward pass (MB)", memory, log_y=True))
    return [
        Figure(
            "layer-cost",
            "One layer, one sequence. Explicit attention keeps an n x n table of weights; the fused kernel computes "
            "the same without keeping it.",
            "Line charts of time and memory against length for explicit and fused attention, LSTM and convolution.",
            panels,
        )
    ]


def cost_exponent(rows: Sequence[Row], key: str, layer: str, least: int = 3) -> float:
    """Exponent of time or memory by n at the smallest width, over the longest lengths."""
    d = min(row["d"] for row in rows)
    lengths = sorted(distinct(rows, "n"))[-least:]
    long = [row for row in select_rows(rows, d=d, layer=layer) if row["n"] in lengths]
    if len(distinct(long, "n")) < 3:
        raise NoRows(f"{layer} at fewer than three lengths")
    return growth(long, key, "n", "layer")[layer].exponent.value


def layer_ratio(rows: Sequence[Row], long: bool) -> float:
    """Time of explicit attention divided by that of the recurrent layer, at the largest width.

    At the longest n if `long`, else at the n that is nearest to d / `SHORT`.
    """
    d = max(row["d"] for row in rows)
    lengths = distinct(select_rows(rows, d=d), "n")
    n = max(lengths) if long else min(lengths, key=lambda n: abs(n - d / SHORT))
    attention, recurrent = (mean_of(rows, "milliseconds", d=d, n=n, layer=layer) for layer in (EXPLICIT, RECURRENT))
    return attention / recurrent


def _exponent_statement(name: str, text: str, key: str, layer: str, quadratic: bool) -> Statement:
    what = "time" if key == "milliseconds" else "memory"
    bound: dict[str, Any] = {"above": SUPERLINEAR} if quadratic else {"below": SUPERLINEAR}
    effect = f"exponent of {what} by n, over the three longest lengths at the smallest width"
    return Statement(name, text, effect, over_seeds(lambda rows: cost_exponent(rows, key, layer)), **bound)


STATEMENTS = (
    _exponent_statement("time-attention", "The time of self-attention grows with n^2.", "milliseconds", EXPLICIT, True),
    _exponent_statement(
        "time-recurrent", "The time of a recurrent layer grows with n.", "milliseconds", RECURRENT, False
    ),
    _exponent_statement(
        "time-convolution", "The time of a convolution grows with n.", "milliseconds", CONVOLUTION, False
    ),
    _exponent_statement(
        "memory-attention", "The memory of self-attention grows with n^2.", "megabytes", EXPLICIT, True
    ),
    _exponent_statement(
        "memory-fused", "A fused kernel, too, needs memory that grows with n^2.", "megabytes", FUSED, True
    ),
    Statement(
        "cheaper-short",
        "Self-attention is faster than a recurrent layer while n < d.",
        f"time of attention / time of the LSTM at n = d / {SHORT}, largest width",
        over_seeds(lambda rows: layer_ratio(rows, long=False)),
        below=1.0,
    ),
    Statement(
        "dearer-long",
        "Self-attention is slower than a recurrent layer when n > d.",
        "time of attention / time of the LSTM at the longest n, largest width",
        over_seeds(lambda rows: layer_ratio(rows, long=True)),
        above=1.0,
    ),
)

CLAIM = Claim(
    name="layer-cost",
    sentence="A self-attention layer costs n^2 d operations, a recurrent one n d^2, a convolution k n d^2; so "
    "attention is cheaper while n < d, and its memory grows with n^2.",
    source="Vaswani et al. 2017, arXiv:1706.03762, Table 1; Dao et al. 2022, arXiv:2205.14135, for the cure",
    method="One layer of each kind, projections included, runs forward and backward over one sequence. Exponents are "
    "fitted over the three longest lengths; memory is what the forward pass keeps, weights left out.",
    conditions=conditions,
    measure=measure,
    figures=figures,
    statements=STATEMENTS,
    cost=1.0,
    looks=Looks(3, 3),
    timed=True,
)

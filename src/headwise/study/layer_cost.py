"""Claim: the cost of one layer by length n and width d (Table 1 of the paper), in time and memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from headwise.network.attention import DotProduct, MultiHeadAttention, scaled_dot_product_attention
from headwise.network.masks import Mask
from headwise.report.figures import Figure, Panel
from headwise.report.statistics import crossing
from headwise.study.claim import Claim, Plan, Row, Verdict, distinct, growth, mean_of, select_rows, series, series_by
from headwise.study.clock import kept_bytes, seconds

EXPLICIT, FUSED, RECURRENT, CONVOLUTION = "attention, explicit", "attention, fused", "lstm", "conv"
KERNEL = 3  # of the convolution


@dataclass(frozen=True)
class Condition:
    """One layer on a batch of one sequence."""

    layer: str
    n: int  # positions
    d: int  # width
    device: str


def conditions(plan: Plan) -> list[Condition]:
    """All lengths for every width."""
    lengths = plan.pick([16, 32, 64], [64, 128, 256, 512, 1024, 2048], [64, 128, 256, 512, 1024, 2048, 4096])
    widths = plan.pick([16], [64, 256], [64, 128, 256, 512])
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


def exponents(rows: Sequence[Row], key: str, least: int = 3) -> dict[str, float]:
    """Exponents of time or memory by n at the smallest width, over the longest lengths."""
    d = min(row["d"] for row in rows)
    lengths = sorted(distinct(rows, "n"))[-least:]
    long = [row for row in select_rows(rows, d=d) if row["n"] in lengths]
    return {layer: law.exponent.value for layer, law in growth(long, key, "n", "layer").items()}


def crossings(rows: Sequence[Row]) -> dict[int, float | None]:
    """For each width the length from which explicit attention is slower than the recurrent layer."""
    found = {}
    for d in sorted(distinct(rows, "d")):
        attention, recurrent = (
            series(select_rows(rows, d=d, layer=layer), layer, "n", "milliseconds") for layer in (EXPLICIT, RECURRENT)
        )
        found[d] = crossing(attention.x, [p.value for p in attention.y], [p.value for p in recurrent.y])
    return found


def judge(rows: Sequence[Row]) -> Verdict:
    """Held if only explicit attention grows faster than linearly; in part if the fused kernel does not."""
    time, memory = exponents(rows, "milliseconds"), exponents(rows, "megabytes")
    quadratic = time[EXPLICIT] > 1.4 and memory[EXPLICIT] > 1.4
    linear = max(time[RECURRENT], time[CONVOLUTION], memory[RECURRENT], memory[CONVOLUTION]) < 1.4
    longest, d = max(row["n"] for row in rows), min(row["d"] for row in rows)
    memory_of = partial(mean_of, rows, "megabytes", n=longest, d=d)
    saved = memory_of(layer=EXPLICIT) / memory_of(layer=FUSED)
    where = "; ".join(
        f"d = {width}: " + (f"from n = {n:,.0f} on" if n else f"not up to n = {longest:,}")
        for width, n in crossings(rows).items()
    )
    reason = (
        f"over the longest lengths time grows as n^{time[EXPLICIT]:.2f} for explicit attention, n^{time[FUSED]:.2f} "
        f"fused, n^{time[RECURRENT]:.2f} recurrent and n^{time[CONVOLUTION]:.2f} convolution (memory "
        f"{memory[EXPLICIT]:.2f}, {memory[FUSED]:.2f}, {memory[RECURRENT]:.2f}, {memory[CONVOLUTION]:.2f}); at n = "
        f"{longest:,} the fused kernel keeps {saved:.0f} times less; explicit attention is slower than the recurrent "
        f"layer ({where}), where counting operations alone says n = d."
    )
    cured = memory[FUSED] < 1.4
    return Verdict(
        "held" if quadratic and linear and not cured else "held in part" if quadratic or linear else "not held", reason
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
    judge=judge,
    seeds={"toy": 1, "quick": 2, "full": 5},
    cost={"toy": 0.05, "quick": 0.35, "full": 2.0},
    timed=True,
)

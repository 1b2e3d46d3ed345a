"""Claim: a recurrent network needs one step after another, attention does a whole sequence at once (training)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from headwise.report.figures import Figure, Panel
from headwise.report.statistics import PowerLaw
from headwise.study.claim import Claim, Plan, Row, Verdict, growth, mean_of, select_rows, series_by
from headwise.study.clock import matrix_rate, seconds
from headwise.study.contenders import ALL, FIRST, make, matched, size

VOCAB = 256
LOOPING = ("bahdanau", "luong")  # their decoders feed a step's attention into the next


@dataclass(frozen=True)
class Condition:
    """One training step of a network, with the same number of tokens for all lengths."""

    network: str
    length: int  # of source and target, positions
    tokens: int  # of each side
    width: int  # of the Transformer; the others have as many parameters
    device: str


def conditions(plan: Plan) -> list[Condition]:
    """Every architecture at every feasible length."""
    lengths = plan.pick([16, 32, 64], [16, 64, 256, 512], [16, 32, 64, 128, 256, 512, 1024, 2048])
    tokens, width = plan.pick((64, 32), (512, 64), (4096, 128))
    longest_loop = plan.pick(64, 256, 1024)  # longer loops in Python take long and keep much for the backward pass
    return [
        Condition(name, length, tokens, width, plan.device)
        for length in lengths
        for name in ALL
        if name not in LOOPING or length <= longest_loop
    ]


def measure(condition: Condition, seed: int) -> list[Row]:
    """Time of forward and backward pass, and the share that one matrix product of the same arithmetic would take."""
    c = condition
    config = matched(c.network, c.width, 2, VOCAB, max_len=c.length)
    network = make(config, c.device)
    src, tgt = torch.randint(FIRST, VOCAB, (2, c.tokens // c.length, c.length), device=c.device)
    mask = torch.ones_like(src, dtype=torch.bool)

    def step() -> None:
        network.zero_grad()
        F.cross_entropy(network(src, tgt, mask).flatten(0, 1), tgt.flatten()).backward()

    time = seconds(step, c.device, repeats=3)
    product = operations(size(config), VOCAB * config.d_model, c.tokens) / matrix_rate(c.device)
    return [
        {
            "milliseconds": 1000 * time,
            "tokens_per_second": 2 * c.tokens / time,
            "share": product / time,
            "parameters": size(config),
        }
    ]


def operations(parameters: int, table: int, tokens: int) -> float:
    """Arithmetic of a training step: two operations per weight and token forward, four backward.

    Half of the weights see the source, half the target; the shared embeddings are a factor in the output only.
    Products of states with states, as in attention, are excluded.

    >>> operations(parameters=110, table=10, tokens=1)
    360.0
    """
    return 6.0 * tokens * ((parameters - table) / 2 + table)


def figures(rows: Sequence[Row]) -> list[Figure]:
    """Throughput and share against length."""
    x, share = "sequence length (positions)", "share of the step a product would take"
    lines = (rows, "network", "length")
    return [
        Figure(
            "sequential",
            "Training steps over the same number of tokens, cut into few long or many short sequences. A level line "
            "means that length costs nothing.",
            "Line charts of step time and of the share of time in matrix products against length for seven "
            "architectures.",
            [
                Panel("Time of a training step", x, "time (ms)", series_by(*lines, "milliseconds"), log_y=True),
                Panel("How near to one big product", x, share, series_by(*lines, "share"), log_y=True),
            ],
        )
    ]


def slopes(rows: Sequence[Row]) -> dict[str, PowerLaw]:
    """Exponent of step time against length for every network."""
    return growth(rows, "milliseconds")


def judge(rows: Sequence[Row]) -> Verdict:
    """Held if every recurrent network slows down with length and attention and convolution do not, or much less."""
    fits = slopes(rows)
    recurrent = [name for name in fits if name not in ("conv", "transformer")]
    slow = [name for name in recurrent if fits[name].exponent.low > 0.15]
    level = fits["transformer"].exponent.value < 0.15
    far = max(row["length"] for row in select_rows(rows, network="lstm"))
    ratio = mean_of(rows, "milliseconds", network="lstm", length=far) / mean_of(
        select_rows(rows, network="transformer", length=far), "milliseconds"
    )
    share = {name: mean_of(rows, "share", network=name, length=far) for name in ("lstm", "transformer")}
    shown = ", ".join(f"{name} {fit.exponent}" for name, fit in fits.items())
    reason = (
        f"at constant tokens a step takes length to the power of: {shown}; at {far:,} positions the lstm takes "
        f"{ratio:.1f} times as long as the Transformer, and one product of the same arithmetic would take "
        f"{share['lstm']:.0%} of the lstm's time and {share['transformer']:.0%} of the Transformer's. Attention's own "
        "n^2 work is in the Transformer's slope."
    )
    return Verdict(
        "held" if level and len(slow) == len(recurrent) else "held in part" if level or slow else "not held", reason
    )


CLAIM = Claim(
    name="sequential",
    sentence="A recurrent network needs t steps one after another and cannot be parallelised over the sequence; "
    "attention does the whole sequence at once.",
    source="Vaswani et al. 2017, arXiv:1706.03762, sections 1 and 4",
    method="A training step (forward, loss, backward) of every architecture over the same number of tokens, cut into "
    "ever longer sequences. Were only arithmetic to count, every recurrent line would be level.",
    conditions=conditions,
    measure=measure,
    figures=figures,
    judge=judge,
    seeds={"toy": 1, "quick": 1, "full": 3},
    cost={"toy": 0.2, "quick": 1.5, "full": 20.0},
    timed=True,
)

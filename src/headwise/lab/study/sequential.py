"""Claim: recurrence needs ever more dependent operations, attention a constant number (in training)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from headwise.evaluate.pages.figures import Figure, Panel
from headwise.lab.study.claim import Claim, Plan, distinct, fit_column, mean_of, select_rows, series_by
from headwise.lab.study.clock import matrix_rate, seconds
from headwise.lab.study.contenders import ALL, FIRST, make, matched, size
from headwise.lab.study.graph import count_chain
from headwise.lab.study.statement import Looks, NoRows, Row, Statement, exact, over_seeds

VOCAB = 256
PARALLEL = ("conv", "transformer")
LOOPING = ("bahdanau", "luong")  # their decoders feed a step's attention into the next
LEVEL = 0.15  # an exponent below this is "level"


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
    lengths = plan.pick([16, 32, 64], [16, 32, 64, 128, 256, 512, 1024])
    tokens, width = plan.pick((64, 32), (2048, 64))
    longest_loop = plan.pick(64, 512)  # longer loops in Python take long and keep much for the backward pass
    return [
        Condition(name, length, tokens, width, plan.device)
        for length in lengths
        for name in ALL
        if name not in LOOPING or length <= longest_loop
    ]


def measure(condition: Condition, seed: int) -> list[Row]:
    """Time of a training step, the share that one product of the same size would take, and the longest chain."""
    c = condition
    config = matched(c.network, c.width, 2, VOCAB, max_len=c.length)
    network = make(config, c.device)
    src, tgt = torch.randint(FIRST, VOCAB, (2, c.tokens // c.length, c.length), device=c.device)
    mask = torch.ones_like(src, dtype=torch.bool)

    def step() -> None:
        network.zero_grad()
        F.cross_entropy(network(src, tgt, mask).flatten(0, 1), tgt.flatten()).backward()

    time = seconds(step, c.device, repeats=3)
    chain = count_chain(lambda: F.cross_entropy(network(src[:1], tgt[:1], mask[:1]).flatten(0, 1), tgt[:1].flatten()))
    product = operations(size(config), VOCAB * config.d_model, c.tokens) / matrix_rate(c.device)
    return [
        {
            "milliseconds": 1000 * time,
            "tokens_per_second": 2 * c.tokens / time,
            "share": product / time,
            "chain": chain,
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
    """Time, share and chain against length."""
    x, share = "sequence length (positions)", "share of the step a product would take"
    lines = (rows, "network", "length")
    return [
        Figure(
            "sequential",
            "Training steps over the same number of tokens, cut into few long or many short sequences. A level line "
            "means that length costs nothing.",
            "Line charts of step time, of the share of time in matrix products and of dependent operations against "
            "length for seven architectures.",
            [
                Panel("Time of a training step", x, "time (ms)", series_by(*lines, "milliseconds"), log_y=True),
                Panel("How near to one big product", x, share, series_by(*lines, "share"), log_y=True),
                Panel("Dependent operations", x, "longest chain (operations)", series_by(*lines, "chain"), log_y=True),
            ],
        )
    ]


def exponent_by_length(rows: Sequence[Row], key: str, network: str) -> float:
    """Exponent of a column by length for one network."""
    chosen = select_rows(rows, network=network)
    if len(distinct(chosen, "length")) < 3:
        raise NoRows(f"{network} at fewer than three lengths")
    return fit_column(chosen, "length", key).exponent.value


def step_ratio(rows: Sequence[Row]) -> float:
    """Time of the LSTM's step divided by that of the Transformer's at the largest length."""
    far = max(row["length"] for row in select_rows(rows, network="lstm"))
    lstm, transformer = (mean_of(rows, "milliseconds", network=name, length=far) for name in ("lstm", "transformer"))
    return lstm / transformer


def _chain_statement(network: str) -> Statement:
    parallel = network in PARALLEL
    what = "stays the same" if parallel else "grows with length"
    bound: dict[str, Any] = {"below": LEVEL} if parallel else {"above": 1 - LEVEL}
    return Statement(
        f"chain-{network}",
        f"{network}: the number of operations of a training step that must wait for one another {what}.",
        "exponent of the longest chain by length (operations)",
        exact(lambda rows: exponent_by_length(rows, "chain", network)),
        **bound,
    )


STATEMENTS = (
    *(_chain_statement(name) for name in ALL),
    Statement(
        "faster",
        "At the largest length a training step of the Transformer is faster than one of an LSTM with as many "
        "parameters, on this device and with one thread.",
        "time of the LSTM / time of the Transformer",
        over_seeds(step_ratio),
        above=1.0,
    ),
)

CLAIM = Claim(
    name="sequential",
    sentence="In a recurrent network the operations of a sequence depend on one another, one after the other; in "
    "attention they do not.",
    source="Vaswani et al. 2017, arXiv:1706.03762, sections 1 and 4",
    method="The longest chain of dependent operations in a training step (forward, loss, backward), for every "
    "architecture and ever longer sequences. The time of the step is measured, too; on one CPU thread it shows the "
    "overhead of many small operations, and not what could run in parallel.",
    conditions=conditions,
    measure=measure,
    figures=figures,
    statements=STATEMENTS,
    cost=5.0,
    looks=Looks(3, 3),
    timed=True,
)

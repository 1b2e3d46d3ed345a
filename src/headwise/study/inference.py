"""Claim: inference is parallel too. That holds for scoring a given text, but not for generating one."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from headwise.contract import EncoderDecoder
from headwise.report.figures import Figure, Panel
from headwise.study.claim import Claim, Plan, Row, Verdict, distinct, growth, mean_of, select_rows, series_by
from headwise.study.clock import seconds
from headwise.study.contenders import ALL, BOS, FIRST, make, matched, size

VOCAB = 256


@dataclass(frozen=True)
class Condition:
    """One sentence of `length` source and target positions."""

    network: str
    length: int
    width: int  # of the Transformer; the others have as many parameters
    device: str


def conditions(plan: Plan) -> list[Condition]:
    """Every architecture at every length."""
    lengths = plan.pick([4, 8, 16], [16, 64, 256], [16, 32, 64, 128, 256, 512, 1024])
    return [Condition(name, length, plan.pick(32, 64, 128), plan.device) for length in lengths for name in ALL]


def measure(condition: Condition, seed: int) -> list[Row]:
    """Time per token of greedy decoding with a cache, and of scoring as many given tokens at once."""
    c = condition
    config = matched(c.network, c.width, 2, VOCAB, max_len=c.length + 1)
    writing, scoring = times(make(config, c.device).eval(), c.length, c.device)
    return [{"writing": writing, "scoring": scoring, "ratio": writing / scoring, "parameters": size(config)}]


def times(network: EncoderDecoder, length: int, device: str) -> tuple[float, float]:
    """Microseconds per token for generating `length` tokens and for scoring them, from a source of equal length."""
    src, tgt = torch.randint(FIRST, VOCAB, (2, 1, length), device=device)
    mask = torch.ones_like(src, dtype=torch.bool)

    def write() -> None:
        memory = network.encode(src, mask)
        cache, token = network.start_cache(memory, mask), torch.full((1, 1), BOS, device=device)
        for _ in range(length):
            token = network.logits(network.decode(token, memory, mask, cache)).argmax(-1)

    def score() -> None:
        network.logits(network.decode(tgt, network.encode(src, mask), mask)).log_softmax(-1)

    with torch.inference_mode():
        writing, scoring = (1e6 * seconds(work, device, repeats=3) / length for work in (write, score))
    return writing, scoring


def figures(rows: Sequence[Row]) -> list[Figure]:
    """Microseconds per token of generating and of scoring."""
    x, y, lines = "length of source and of target (positions)", "time per token (µs)", (rows, "network", "length")
    return [
        Figure(
            "inference",
            "Left: each token waits for the one before it, whatever the architecture. Right: when the text is given, "
            "all its positions can be computed together, unless a decoder feeds its attention back into itself.",
            "Line charts of time per token against length, for writing and for scoring, for seven architectures.",
            [
                Panel("Writing, greedy with cache", x, y, series_by(*lines, "writing"), log_y=True),
                Panel("Scoring a given text", x, y, series_by(*lines, "scoring"), log_y=True),
            ],
        )
    ]


def judge(rows: Sequence[Row]) -> Verdict:
    """Held if a generated token gets cheaper with length as a scored one does; in part if only scoring does."""
    fits = {
        (name, key): law.exponent.value for key in ("writing", "scoring") for name, law in growth(rows, key).items()
    }
    far = max(row["length"] for row in rows)
    longest = select_rows(rows, length=far)
    parallel_writing, parallel_scoring = fits["transformer", "writing"] < -0.4, fits["transformer", "scoring"] < -0.2
    fastest = min(distinct(rows, "network"), key=lambda name: mean_of(longest, "writing", network=name))
    times = {name: mean_of(longest, "writing", network=name) for name in ("transformer", "lstm")}
    ratio = mean_of(longest, "ratio", network="transformer")
    loops = mean_of(longest, "ratio", network="bahdanau")
    still = "" if parallel_writing else "writing goes one token after another in every architecture: "
    reason = (
        f"{still}at {far:,} positions a written token costs {times['transformer']:.0f} µs in the Transformer and "
        f"{times['lstm']:.0f} µs in the lstm (cheapest: {fastest}), and the Transformer's grows with length as "
        f"n^{fits['transformer', 'writing']:.2f}. Scoring a given text is parallel: {ratio:.0f} times cheaper a token "
        f"in the Transformer, {loops:.1f} times in bahdanau, whose decoder must loop."
    )
    held = "held" if parallel_writing and parallel_scoring else "held in part" if parallel_scoring else "not held"
    return Verdict(held, reason)


CLAIM = Claim(
    name="inference",
    sentence="Attention makes inference parallel, too.",
    source="stated in many introductions; the paper, arXiv:1706.03762, section 3.1, says that the decoder is "
    "auto-regressive",
    method="Each architecture writes a text token by token with its cache, one sentence at a time, and scores a "
    "given text of the same length in one pass.",
    conditions=conditions,
    measure=measure,
    figures=figures,
    judge=judge,
    seeds={"toy": 1, "quick": 1, "full": 3},
    cost={"toy": 0.2, "quick": 1.5, "full": 15.0},
    timed=True,
)

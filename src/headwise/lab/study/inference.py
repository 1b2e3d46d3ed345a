"""Claim: inference is parallel too. That holds for scoring a given text, but not for generating one."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from headwise.contract import EncoderDecoder
from headwise.evaluate.pages.figures import Figure, Panel
from headwise.lab.study.claim import Claim, Plan, growth, mean_of, select_rows, series_by
from headwise.lab.study.clock import seconds
from headwise.lab.study.contenders import ALL, BOS, FIRST, make, matched, size
from headwise.lab.study.statement import Looks, Row, Statement, over_seeds

VOCAB = 256
PARALLEL = -0.4  # time per token falls at least with this power of length if tokens are computed together
MUCH = 2.0  # times cheaper


@dataclass(frozen=True)
class Condition:
    """One sentence of `length` source and target positions."""

    network: str
    length: int
    width: int  # of the Transformer; the others have as many parameters
    device: str


def conditions(plan: Plan) -> list[Condition]:
    """Every architecture at every length."""
    lengths = plan.pick([4, 8, 16], [16, 64, 256, 512])
    return [Condition(name, length, plan.pick(32, 64), plan.device) for length in lengths for name in ALL]


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


def token_exponent(rows: Sequence[Row], key: str, network: str) -> float:
    """Exponent of the time per token by length."""
    return growth(select_rows(rows, network=network), key)[network].exponent.value


def saved(rows: Sequence[Row], network: str) -> float:
    """How many times cheaper a token is scored than generated, at the largest length."""
    return mean_of(rows, "ratio", network=network, length=max(row["length"] for row in rows))


STATEMENTS = (
    Statement(
        "generating",
        "The Transformer generates the tokens of a text in parallel.",
        "exponent of the time per generated token by length",
        over_seeds(lambda rows: token_exponent(rows, "writing", "transformer")),
        below=PARALLEL,
    ),
    Statement(
        "scoring",
        "The Transformer scores the tokens of a given text in parallel.",
        "exponent of the time per scored token by length",
        over_seeds(lambda rows: token_exponent(rows, "scoring", "transformer")),
        below=PARALLEL,
    ),
    *(
        Statement(
            f"scoring-{network}",
            f"{network}: scoring a token is more than {MUCH:g} times cheaper than generating it.",
            "time per generated token / time per scored token at the largest length",
            over_seeds(lambda rows, network=network: saved(rows, network)),
            above=MUCH,
        )
        for network in ("transformer", "lstm", "bahdanau")
    ),
)

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
    statements=STATEMENTS,
    cost=5.0,
    looks=Looks(3, 3),
    timed=True,
)

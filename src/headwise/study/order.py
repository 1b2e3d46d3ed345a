"""Claim: without positional encoding order is lost."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.network.masks import causal_mask
from headwise.network.parameters import count_parameters
from headwise.network.positions import LearnedPositions, NoPositions, SinusoidalPositions, sequential_positions
from headwise.network.rotary import Rotary, rotary_rates
from headwise.report.figures import Figure, Panel
from headwise.study.claim import Claim, Plan, Row, Verdict, distinct, mean_of, series, series_by
from headwise.study.contenders import encoder_layers
from headwise.study.learning import train_network

SYMBOLS = 16
KINDS = ("none", "none, causal", "sinusoidal", "learned", "rotary")
BATCH = 32


@dataclass(frozen=True)
class Condition:
    """One kind of positional encoding, trained on lengths up to `length` and tested beyond."""

    positions: str
    width: int
    length: int
    steps: int


def conditions(plan: Plan) -> list[Condition]:
    """Every kind at one size."""
    width, length, steps = plan.pick((16, 8, 3), (32, 16, 250), (64, 32, 3000))
    return [Condition(kind, width, length, steps) for kind in KINDS]


class Reader(nn.Module):
    """The project's encoder layers (pre-norm) with one kind of positional encoding."""

    def __init__(self, kind: str, width: int, max_len: int, n_heads: int = 2, n_layers: int = 2) -> None:
        super().__init__()
        rotate = Rotary(rotary_rates(width // n_heads, base=10000.0)) if kind == "rotary" else None
        self.is_causal = kind == "none, causal"
        self.embedding = nn.Embedding(SYMBOLS, width)
        self.positions = {
            "sinusoidal": lambda: SinusoidalPositions(width),
            "learned": lambda: LearnedPositions(width, max_len),
        }.get(kind, NoPositions)()
        self.layers = encoder_layers(n_layers, width, 2 * width, n_heads, rotate)
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, SYMBOLS)

    def forward(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length symbols"]:
        """Logits at every position."""
        length = tokens.size(1)
        x = self.embedding(tokens) + self.positions(*sequential_positions(tokens))
        everything = torch.ones(length, length, dtype=torch.bool)
        mask = causal_mask(length, length, tokens.device) if self.is_causal else everything
        for layer in self.layers:
            x = layer(x, mask[None, None])
        return self.output(self.norm(x))


def measure(condition: Condition, seed: int) -> list[Row]:
    """Accuracy at lengths of the training and beyond."""
    c = condition
    network = Reader(c.positions, c.width, max_len=8 * c.length)

    def loss() -> Tensor:
        tokens = torch.randint(SYMBOLS, (BATCH, int(torch.randint(2, c.length + 1, ()))))
        return F.cross_entropy(network(tokens)[:, 1:].flatten(0, 1), tokens[:, :-1].flatten())

    train_network(network, loss, c.steps, rate=0.006)
    lengths = (c.length // 2, c.length, 2 * c.length, 4 * c.length, 8 * c.length)
    about = {"network": c.positions, "parameters": count_parameters(network)}
    return [
        {"tested": length, "accuracy": neighbour_accuracy(network, length), "bag": bag(length), **about}
        for length in lengths
    ]


@torch.no_grad()
def neighbour_accuracy(network: Reader, length: int) -> float:
    """Share of positions, from the second on, whose left neighbour is predicted correctly."""
    tokens = torch.randint(SYMBOLS, (64, length))
    return (network(tokens)[:, 1:].argmax(-1) == tokens[:, :-1]).float().mean().item()


def bag(length: int) -> float:
    """The accuracy without order: the best guess is the most frequent other symbol."""
    tokens = torch.randint(SYMBOLS, (256, length))
    others = F.one_hot(tokens, SYMBOLS).sum(1, keepdim=True) - F.one_hot(tokens, SYMBOLS)  # without the symbol itself
    return (others.max(-1).values / (length - 1)).mean().item()


def figures(rows: Sequence[Row]) -> list[Figure]:
    """Accuracy against the length tested."""
    panel = Panel(
        "Name the symbol to the left",
        "length tested (positions)",
        "accuracy (share of positions)",
        [
            *series_by(rows, "positions", "tested", "accuracy"),
            series(rows, "best guess without order", "tested", "bag"),
        ],
        marks={"longest in training": float(rows[0]["length"])},
        y_range=(0, 1.05),
    )
    return [
        Figure(
            "order",
            "Left of the dotted line lengths seen in training, right of it lengths never seen.",
            "Line chart of accuracy against length for five ways of telling the network about order.",
            [panel],
        )
    ]


def judge(rows: Sequence[Row]) -> Verdict:
    """Held if nothing but the best guess is left without positions; in part, for a causal mask tells order as well."""
    seen = rows[0]["length"]
    longest = max(row["tested"] for row in rows)
    inside, beyond = (
        {kind: mean_of(rows, "accuracy", positions=kind, tested=length) for kind in distinct(rows, "positions")}
        for length in (seen, longest)
    )
    guess = mean_of(rows, "bag", tested=seen)
    lost = inside["none"] < guess + 0.05
    ordered = [kind for kind in ("sinusoidal", "learned", "rotary") if inside[kind] > inside["none"] + 0.2]
    causal = inside["none, causal"] > inside["none"] + 0.2
    shown = ", ".join(f"{kind} {inside[kind]:.0%} ({beyond[kind]:.0%})" for kind in inside)
    best = max(beyond, key=lambda kind: beyond[kind])
    also = "; a causal mask alone gives order away, so the claim is about attention that sees both ways" * causal
    reason = (
        f"accuracy at length {seen} (and, never seen in training, at {longest}): {shown}; the best guess without "
        f"order is right in {guess:.0%}. Farthest beyond training comes {best}{also}."
    )
    return Verdict(
        "held" if lost and len(ordered) == 3 and not causal else "held in part" if lost and ordered else "not held",
        reason,
    )


CLAIM = Claim(
    name="order",
    sentence="Without positional encoding attention loses the order of its input.",
    source="Vaswani et al. 2017, arXiv:1706.03762, section 3.5; for the causal mask Haviv et al. 2022, "
    "arXiv:2203.16634",
    method="At every position a small encoder of the project's own layers names the symbol to the left. It learns on "
    "short "
    "sequences and is tested on sequences up to eight times as long. Attention sees both ways unless it says causal.",
    conditions=conditions,
    measure=measure,
    figures=figures,
    judge=judge,
    seeds={"toy": 1, "quick": 2, "full": 5},
    cost={"toy": 0.1, "quick": 3.0, "full": 120.0},
)

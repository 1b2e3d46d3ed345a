"""Claim: without positional encoding order is lost."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.core.build import count_parameters
from headwise.core.extensions.rotary import Rotary, rotary_rates
from headwise.core.masks import causal_mask
from headwise.core.positions import LearnedPositions, NoPositions, SinusoidalPositions, sequential_positions
from headwise.evaluate.pages.figures import Figure, Panel
from headwise.lab.study.claim import Claim, Plan, mean_of, series, series_by
from headwise.lab.study.contenders import encoder_layers
from headwise.lab.study.learning import train_network
from headwise.lab.study.statement import Row, Statement, over_seeds

SYMBOLS = 16
KINDS = ("none", "none, causal", "sinusoidal", "learned", "rotary")
BATCH = 32
RATE = 0.006
MARGIN = 0.05  # of accuracy: less is no difference
MUCH = 0.2  # of accuracy


@dataclass(frozen=True)
class Condition:
    """One kind of positional encoding, trained on lengths up to `length` and tested beyond."""

    positions: str
    width: int
    length: int
    steps: int
    rate: float  # learning rate


def conditions(plan: Plan) -> list[Condition]:
    """Every kind at one size."""
    width, length, steps = plan.pick((16, 8, 3), (64, 32, 2000))
    return [Condition(kind, width, length, steps, RATE) for kind in KINDS]


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
    """Accuracy at lengths of the training, and beyond them at the positions that no training example had."""
    c = condition
    network = Reader(c.positions, c.width, max_len=8 * c.length)

    def loss() -> Tensor:
        tokens = torch.randint(SYMBOLS, (BATCH, int(torch.randint(2, c.length + 1, ()))))
        return F.cross_entropy(network(tokens)[:, 1:].flatten(0, 1), tokens[:, :-1].flatten())

    training = train_network(network, loss, c.steps, c.rate)
    validation = neighbour_accuracy(network, c.length)
    lengths = (c.length // 2, c.length, 2 * c.length, 4 * c.length, 8 * c.length)
    about = {"network": c.positions, "parameters": count_parameters(network)}
    about |= {"validation": validation, "diverged": training.diverged}
    return [
        {
            "tested": length,
            "accuracy": neighbour_accuracy(network, length, c.length if length > c.length else 1),
            "bag": bag(length),
            **about,
        }
        for length in lengths
    ]


@torch.no_grad()
def neighbour_accuracy(network: Reader, length: int, first: int = 1) -> float:
    """Share of positions, from `first` on (0 has no left neighbour), whose left neighbour is predicted correctly."""
    tokens = torch.randint(SYMBOLS, (64, length))
    return (network(tokens)[:, first:].argmax(-1) == tokens[:, first - 1 : -1]).float().mean().item()


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
            "Left of the dotted line lengths seen in training. Right of it, only unseen positions are scored.",
            "Line chart of accuracy against length for five ways of telling the network about order.",
            [panel],
        )
    ]


def ahead(rows: Sequence[Row], kind: str) -> float:
    """Accuracy of a kind at the longest trained length, less that of the best guess without order."""
    seen = rows[0]["length"]
    return mean_of(rows, "accuracy", positions=kind, tested=seen) - mean_of(rows, "bag", tested=seen)


def beyond(rows: Sequence[Row], kind: str) -> float:
    """Accuracy at the unseen positions of twice the longest trained length, less that at the trained length."""
    seen = rows[0]["length"]
    far, near = (mean_of(rows, "accuracy", positions=kind, tested=length) for length in (2 * seen, seen))
    return far - near


STATEMENTS = (
    Statement(
        "lost",
        f"Without positional encoding, attention that sees both ways is less than {MARGIN:g} better than a "
        "guess without order.",
        "accuracy less that of the best guess",
        over_seeds(lambda rows: ahead(rows, "none")),
        below=MARGIN,
        primary=True,
    ),
    Statement(
        "lost-causal",
        f"Without positional encoding, causal attention is less than {MARGIN:g} better than a guess without order.",
        "accuracy less that of the best guess",
        over_seeds(lambda rows: ahead(rows, "none, causal")),
        below=MARGIN,
    ),
    *(
        Statement(
            f"found-{kind}",
            f"With {kind} positions the order is known: accuracy is more than {MUCH:g} above a guess without order.",
            "accuracy less that of the best guess",
            over_seeds(lambda rows, kind=kind: ahead(rows, kind)),
            above=MUCH,
        )
        for kind in ("sinusoidal", "learned", "rotary")
    ),
    *(
        Statement(
            f"beyond-{kind}",
            f"With {kind} positions the order is also known at twice the longest length of the training: accuracy "
            f"falls by less than {MARGIN:g}.",
            "accuracy at the unseen positions of twice the length, less that at the length",
            over_seeds(lambda rows, kind=kind: beyond(rows, kind)),
            above=-MARGIN,
        )
        for kind in ("sinusoidal", "rotary")
    ),
)

CLAIM = Claim(
    name="order",
    sentence="Without positional encoding attention loses the order of its input.",
    source="Vaswani et al. 2017, arXiv:1706.03762, section 3.5; for the causal mask Haviv et al. 2022, "
    "arXiv:2203.16634",
    method="At every position a small encoder of the project's own layers names the symbol to the left. It learns on "
    "short sequences and is tested on sequences up to eight times as long, there at positions that no training example "
    "had. Attention sees both ways unless it says causal.",
    conditions=conditions,
    measure=measure,
    figures=figures,
    statements=STATEMENTS,
    cost=40.0,
)

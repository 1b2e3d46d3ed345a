"""Claim: for large d_k, training is slow without the factor 1/sqrt(d_k); for small d_k it makes no difference."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.core.attention import DotProduct
from headwise.core.build import count_parameters
from headwise.core.masks import Mask
from headwise.core.positions import SinusoidalPositions, sequential_positions
from headwise.evaluate.pages.figures import Figure, Panel
from headwise.lab.study.claim import Claim, Plan, mean_of, select_rows, series_by
from headwise.lab.study.contenders import encoder_layers
from headwise.lab.study.learning import train_network
from headwise.lab.study.statement import NoRows, Row, Statement, over_seeds

WITH, WITHOUT = "with 1/sqrt(d_k)", "without"
SYMBOLS = 16
BATCH = 32
RATE = 0.006
GOAL, RECENT = 0.9, 10  # a network has learned when the mean accuracy of its last batches is so high
SLOWER = 1.5  # times as many updates


@dataclass(frozen=True)
class Condition:
    """One network, trained to name the symbol to the left."""

    factor: str
    d_k: int  # of the one head of each layer; its values have the width of the network
    width: int
    length: int  # positions
    steps: int
    rate: float  # learning rate


def conditions(plan: Plan) -> list[Condition]:
    """Widths of queries and keys, with and without the factor."""
    widths = plan.pick((4, 64), (4, 64, 512))
    width, length, steps = plan.pick((16, 8, 3), (64, 32, 1500))
    return [Condition(factor, d_k, width, length, steps, RATE) for d_k in widths for factor in (WITH, WITHOUT)]


class RecordingKernel(DotProduct):
    """The paper's attention function; it can keep the weights of its last call."""

    def __init__(self, scale: float) -> None:
        super().__init__(scale)
        self.entropy: list[float] | None = None  # of each call, while it is a list

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        if self.entropy is not None:
            weights = self.weights(q, k, mask)
            bits = -(weights * weights.clamp_min(1e-30).log()).sum(-1).mean()
            self.entropy.append(bits.item())
        return super().__call__(q, k, v, mask)


class Neighbours(nn.Module):
    """Two of the project's encoder layers (pre-norm) with one head, and sinusoidal positions."""

    def __init__(self, width: int, d_k: int, scaled: bool) -> None:
        super().__init__()
        self.kernel = RecordingKernel(scale=0.0 if scaled else 1.0)  # 0 is the paper's factor
        self.embedding = nn.Embedding(SYMBOLS, width)
        self.positions = SinusoidalPositions(width)
        self.layers = encoder_layers(2, width, 2 * width, 1, d_k=d_k, kernel=self.kernel)
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, SYMBOLS)

    def forward(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length symbols"]:
        """Logits at every position."""
        x = self.embedding(tokens) + self.positions(*sequential_positions(tokens))
        mask = torch.ones(1, 1, tokens.size(1), tokens.size(1), dtype=torch.bool)
        for layer in self.layers:
            x = layer(x, mask)
        return self.output(self.norm(x))


def measure(condition: Condition, seed: int) -> list[Row]:
    """How soon a network learns, its accuracy, and the entropy of the attention weights before and after training.

    All networks name every symbol in the end, so what is compared is the number of updates. No batch is seen twice, so
    the accuracy on the batches of the training is one of validation.
    """
    c = condition
    network = Neighbours(c.width, c.d_k, c.factor == WITH)
    before = mean_entropy(network, c.length)
    accuracies = list[float]()

    def loss() -> Tensor:
        tokens = torch.randint(SYMBOLS, (BATCH, c.length))
        logits, left = network(tokens)[:, 1:], tokens[:, :-1]
        accuracies.append((logits.argmax(-1) == left).float().mean().item())
        return F.cross_entropy(logits.flatten(0, 1), left.flatten())

    training = train_network(network, loss, c.steps, c.rate)
    about = {"parameters": count_parameters(network), "diverged": training.diverged}
    entropy = {"entropy_before": before, "entropy_after": mean_entropy(network, c.length)}
    updates = first_good(accuracies)
    learned = {"updates": updates or c.steps, "learned": bool(updates), "accuracy": named(network, c.length)}
    return [{"validation": sum(accuracies) / len(accuracies), **learned, **entropy, **about}]


def first_good(accuracies: Sequence[float]) -> int:
    """The first number of updates after which the recent accuracies have a mean of `GOAL`; 0 = none.

    >>> first_good([0.1, *[0.95] * 20]), first_good([0.5] * 20)
    (11, 0)
    """
    means = ((end, sum(accuracies[end - RECENT : end]) / RECENT) for end in range(RECENT, len(accuracies) + 1))
    return next((end for end, mean in means if mean >= GOAL), 0)


@torch.no_grad()
def named(network: Neighbours, length: int) -> float:
    """Share of positions, from the second on, whose left neighbour is predicted correctly, in new sequences."""
    tokens = torch.randint(SYMBOLS, (128, length))
    return (network(tokens)[:, 1:].argmax(-1) == tokens[:, :-1]).float().mean().item()


@torch.no_grad()
def mean_entropy(network: Neighbours, length: int) -> float:
    """Entropy of the weights, mean over layers and positions, nats."""
    network.kernel.entropy = []
    network(torch.randint(SYMBOLS, (32, length)))
    found, network.kernel.entropy = network.kernel.entropy, None
    return sum(found) / len(found)


def figures(rows: Sequence[Row]) -> list[Figure]:
    """Updates and entropy against d_k."""
    x = "width of queries and keys d_k (components)"
    updates, before, after = (
        series_by(rows, "factor", "d_k", key) for key in ("updates", "entropy_before", "entropy_after")
    )
    entropy = "entropy of the weights (nats)"
    return [
        Figure(
            "scaled-training",
            "Each network kept the best learning rate. Without the factor, larger d_k means larger scores at the "
            "start of the training.",
            "Line charts of updates and of entropy before and after training against d_k, with the factor and "
            "without it.",
            [
                Panel("Until nine of ten symbols are named", x, "updates", updates, log_y=True),
                Panel("Entropy before training", x, entropy, before),
                Panel("Entropy after training", x, entropy, after),
            ],
        )
    ]


def slowdown(rows: Sequence[Row], large: bool) -> float:
    """Updates without the factor for each with it, at the largest or smallest d_k.

    At the largest, a network without the factor that has not learned counts as one that learned with its last update.
    """
    d_k = (max if large else min)(row["d_k"] for row in rows)
    scaled, plain = (select_rows(rows, factor=factor, d_k=d_k) for factor in (WITH, WITHOUT))
    if not all(row["learned"] for row in (scaled if large else [*scaled, *plain])):
        raise NoRows("a network has not learned")
    return mean_of(plain, "updates") / mean_of(scaled, "updates")


def saturation(rows: Sequence[Row]) -> float:
    """Entropy of the untrained network with the factor less that without it, at the largest d_k."""
    d_k = max(row["d_k"] for row in rows)
    scaled, plain = (mean_of(rows, "entropy_before", factor=factor, d_k=d_k) for factor in (WITH, WITHOUT))
    return scaled - plain


EFFECT = "updates without the factor for each with it, until nine of ten symbols are named"
STATEMENTS = (
    Statement(
        "small",
        "At the smallest d_k a network learns as fast without the factor: the numbers of updates differ by less than "
        f"a factor of {SLOWER:g}.",
        EFFECT,
        over_seeds(lambda rows: slowdown(rows, large=False)),
        above=1 / SLOWER,
        below=SLOWER,
    ),
    Statement(
        "large",
        f"At the largest d_k a network learns more slowly without the factor, with more than {SLOWER:g} times as many "
        "updates.",
        EFFECT,
        over_seeds(lambda rows: slowdown(rows, large=True)),
        above=SLOWER,
        primary=True,
    ),
    Statement(
        "saturated",
        "At the largest d_k attention without the factor is less even before the first update, by more than 0.1 nats.",
        "entropy of the weights with the factor less that without, in nats",
        over_seeds(saturation),
        above=0.1,
    ),
)

CLAIM = Claim(
    name="scaled-training",
    sentence="For small d_k attention trains as well without the factor 1/sqrt(d_k), for large d_k it does not.",
    source="Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1",
    method="A small encoder of the project's own layers, with one head, names the symbol to the left of every "
    "position. It is trained with and without the factor at several d_k. Each network keeps the learning rate with the "
    "highest accuracy over the whole training. All of them name every symbol in the end, so updates are compared.",
    conditions=conditions,
    measure=measure,
    figures=figures,
    statements=STATEMENTS,
    cost=40.0,
)

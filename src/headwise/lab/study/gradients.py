"""Claim: gradients vanish or explode on their way through time; gates, clipping, residuals and norms are the cures."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.evaluate.pages.figures import Figure, Panel, Series
from headwise.lab.study.claim import Claim, Plan, mean_of, select_rows, series
from headwise.lab.study.learning import train_network
from headwise.lab.study.statement import Row, Statement, over_seeds

SYMBOLS = 8  # to remember
CELLS: dict[str, type[nn.RNN] | type[nn.LSTM] | type[nn.GRU]] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
STACKS = ("plain", "residual", "residual + norm")
HUGE = 1e30  # a gradient that is not finite counts as this
FAINT = 1e-30  # below this a float32 gradient is nothing
RATE = 0.01
STRONG = 3.0  # gain of the plain network whose gradients may explode
VANISHED = -3.0  # decimal logarithm of the share of a gradient that is left
EXPLODED = 1.0  # decimal logarithm of a gradient norm
MARGIN = 0.1  # of accuracy
STRONGER = 2.0  # decimal logarithm: a hundred times


@dataclass(frozen=True)
class Condition:
    """A recurrent network over time (`cell`), or a feed-forward one over depth (`stack`); the other field is empty."""

    cell: str
    stack: str
    gain: float  # factor of the recurrent matrix at initialization
    clip: float  # largest gradient norm in training; 0 = none
    steps: int  # training updates; 0 = as initialized
    reach: int  # positions, or layers
    width: int
    rate: float  # learning rate; 0 = not trained


def conditions(plan: Plan) -> list[Condition]:
    """Cells as initialized and trained, a plain one with a large initialization, and stacks of layers."""
    width, reach = plan.pick((8, 8), (64, 128))
    steps = plan.pick(4, 1500)
    fresh = [Condition(cell, "", 1.0, 0.0, 0, reach, width, 0.0) for cell in CELLS]
    strong = Condition("rnn", "", STRONG, 0.0, 0, reach, width, 0.0)
    trained = [Condition(cell, "", 1.0, 1.0, steps, reach, width, RATE) for cell in CELLS]
    clipping = [Condition("rnn", "", STRONG, clip, steps, reach, width, RATE) for clip in (0.0, 1.0)]
    stacks = [Condition("", stack, 1.0, 0.0, 0, reach, width, 0.0) for stack in STACKS]
    return [*fresh, strong, *trained, *clipping, *stacks]


class Rememberer(nn.Module):
    """Reads a symbol and then noise; predicts the symbol from its last state."""

    def __init__(self, cell: str, width: int, gain: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(2 * SYMBOLS, width)
        self.cell = CELLS[cell](width, width, batch_first=True)
        self.output = nn.Linear(width, SYMBOLS)
        with torch.no_grad():
            self.cell.get_parameter("weight_hh_l0").mul_(gain)

    def forward(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, "batch symbols"]:
        """Logits of the symbols."""
        return self.output(self.cell(self.embedding(tokens))[0][:, -1])


def sample_sequences(batch: int, length: int) -> tuple[Int[Tensor, "batch length"], Int[Tensor, " batch"]]:
    """The symbol to remember comes first, noise from another alphabet after it."""
    tokens = torch.randint(SYMBOLS, 2 * SYMBOLS, (batch, length))
    tokens[:, 0] = torch.randint(SYMBOLS, (batch,))
    return tokens, tokens[:, 0]


def measure(condition: Condition, seed: int) -> list[Row]:
    """Gradient norms by distance; for a trained network also its accuracy and largest gradient."""
    c = condition
    if c.stack:
        norms = depth_gradients(c.stack, c.width, c.reach)
        return [{"distance": far, "gradient": norm, "validation": 0.0, "diverged": 0} for far, norm in norms]
    network, largest, diverged = Rememberer(c.cell, c.width, c.gain), [0.0], 0
    if c.steps:

        def loss() -> Tensor:
            length = int(torch.randint(2, c.reach + 1, ()))  # only from long ones nothing would be learned at first
            tokens, symbols = sample_sequences(32, length)
            return F.cross_entropy(network(tokens), symbols)

        diverged = train_network(
            network, loss, c.steps, c.rate, clip=c.clip, each=lambda step, loss, norm: largest.append(norm)
        ).diverged
    finite = [norm if math.isfinite(norm) else HUGE for norm in largest]
    also = {"largest_update": min(max(finite), HUGE), "diverged": diverged, "validation": remembered(network, c.reach)}
    also["accuracy"] = remembered(network, c.reach)
    tokens, _ = sample_sequences(32, c.reach)
    return [{"distance": far, "gradient": norm, **also} for far, norm in time_gradients(network, tokens)]


@torch.no_grad()
def remembered(network: Rememberer, length: int) -> float:
    """Share of new sequences whose first symbol the network predicts."""
    tokens, symbols = sample_sequences(256, length)
    return (network(tokens).argmax(-1) == symbols).float().mean().item()


def time_gradients(network: Rememberer, tokens: Int[Tensor, "batch length"]) -> list[tuple[int, float]]:
    """Norm of d last state / d input at each distance, for a random direction of the state; mean over a batch."""
    inputs = network.embedding(tokens[:32]).detach().requires_grad_()
    last = network.cell(inputs)[0][:, -1]
    direction = F.normalize(torch.randn_like(last), dim=-1)
    (grad,) = torch.autograd.grad((last * direction).sum(), inputs)
    norms = grad.norm(dim=-1).mean(0).flip(0).clamp_min(FAINT).tolist()  # distance 0 first
    return [(far, norm) for far, norm in enumerate(norms) if (far and (far & (far - 1)) == 0) or far == len(norms) - 1]


def depth_gradients(stack: str, width: int, depth: int) -> list[tuple[int, float]]:
    """The same through `depth` layers of tanh(W x): norm of d output / d state at each distance in layers."""
    layers = [nn.Linear(width, width) for _ in range(depth)]
    norm = nn.LayerNorm(width)
    x = torch.randn(32, width, requires_grad=True)
    states = [x]
    for layer in layers:
        y = torch.tanh(layer(norm(x) if "norm" in stack else x))
        x = y if stack == "plain" else x + y
        states.append(x)
    direction = F.normalize(torch.randn_like(x), dim=-1)
    grads = torch.autograd.grad((x * direction).sum(), states)
    norms = [grad.norm(dim=-1).mean().clamp_min(FAINT).item() for grad in reversed(grads)]
    return [(far, norm) for far, norm in enumerate(norms) if far and (far & (far - 1)) == 0]


def figures(rows: Sequence[Row]) -> list[Figure]:
    """Gradients through time, as initialized and after training, and through depth."""
    x, y = "distance (positions)", "norm of d last state / d input"
    fresh, trained = (
        _time_lines([row for row in rows if row["cell"] and bool(row["steps"]) == after]) for after in (False, True)
    )
    depth = [series(select_rows(rows, stack=stack), stack, "distance", "gradient") for stack in STACKS]
    return [
        Figure(
            "gradients",
            "A level line would mean that the distant past teaches as well as the present. The strong plain network "
            "starts with three times the usual recurrent matrix.",
            "Three line charts of gradient norm against distance: plain recurrence falls steeply, gated cells less, "
            "residual stacks stay level.",
            [
                Panel("Through time, as initialised", x, y, fresh, log_y=True),
                Panel("Through time, after training", x, y, trained, log_y=True),
                Panel(
                    "Through depth, as initialised",
                    "distance (layers)",
                    "norm of d output / d state",
                    depth,
                    log_y=True,
                ),
            ],
        )
    ]


def _time_lines(rows: Sequence[Row]) -> list[Series]:
    lines = []
    for cell, gain, clip in dict.fromkeys((row["cell"], row["gain"], row["clip"]) for row in rows):
        strong = (
            ""
            if gain == 1
            else " strong"
            if not rows[0]["steps"]
            else f" strong, {'clipped' if clip else 'not clipped'}"
        )
        lines.append(series(select_rows(rows, cell=cell, gain=gain, clip=clip), cell + strong, "distance", "gradient"))
    return lines


def gradient_left(rows: Sequence[Row]) -> float:
    """Gradient at the largest distance as a share of that at distance 1."""
    far = max(row["distance"] for row in rows)
    return mean_of(rows, "gradient", distance=far) / mean_of(rows, "gradient", distance=1)


def log_kept(rows: Sequence[Row], **wanted: Any) -> float:
    """Decimal logarithm of `kept` in the rows of one network as initialised."""
    return math.log10(gradient_left(select_rows(rows, steps=0, **wanted)))


def trained_accuracy(rows: Sequence[Row], cell: str, gain: float, clip: float) -> float:
    """Accuracy of a trained network."""
    trained = [row for row in rows if row["steps"]]
    return mean_of(trained, "accuracy", cell=cell, gain=gain, clip=clip)


def gain_of_gates(rows: Sequence[Row], cell: str) -> float:
    """Accuracy of a gated network less that of the plain one."""
    return trained_accuracy(rows, cell, 1.0, 1.0) - trained_accuracy(rows, "rnn", 1.0, 1.0)


def gain_of_clipping(rows: Sequence[Row]) -> float:
    """Accuracy of the strong plain network with clipping, less that without."""
    return trained_accuracy(rows, "rnn", STRONG, 1.0) - trained_accuracy(rows, "rnn", STRONG, 0.0)


def largest_gradient(rows: Sequence[Row]) -> float:
    """Decimal logarithm of the largest gradient norm in the training of the strong network without clipping."""
    trained = [row for row in rows if row["steps"]]
    return math.log10(mean_of(trained, "largest_update", cell="rnn", gain=STRONG, clip=0.0))


LEFT = "decimal logarithm of the gradient at the largest distance / gradient at distance 1"
STATEMENTS = (
    Statement(
        "vanishes",
        "In a plain recurrent network gradients vanish through time: less than a thousandth is left.",
        LEFT,
        over_seeds(lambda rows: log_kept(rows, cell="rnn", gain=1.0)),
        below=VANISHED,
    ),
    *(
        Statement(
            f"gates-{cell}",
            f"As initialised, the {cell.upper()} keeps more than a thousandth of the gradient.",
            LEFT,
            over_seeds(lambda rows, cell=cell: log_kept(rows, cell=cell, gain=1.0)),
            above=VANISHED,
        )
        for cell in ("lstm", "gru")
    ),
    *(
        Statement(
            f"learns-{cell}",
            f"The {cell.upper()} learns to remember farther than the plain network: its accuracy is more than "
            f"{MARGIN:g} higher.",
            "accuracy of the gated network less that of the plain one",
            over_seeds(lambda rows, cell=cell: gain_of_gates(rows, cell)),
            above=MARGIN,
        )
        for cell in ("lstm", "gru")
    ),
    Statement(
        "explodes",
        "In a plain recurrent network with a strong recurrent matrix gradients explode: their norm exceeds 10.",
        "decimal logarithm of the largest gradient norm of the training",
        over_seeds(largest_gradient),
        above=EXPLODED,
    ),
    Statement(
        "clipping",
        f"Clipping lets that network learn to remember: its accuracy is higher by more than {MARGIN:g}.",
        "accuracy with clipping less that without",
        over_seeds(gain_of_clipping),
        above=MARGIN,
    ),
    *(
        Statement(
            name,
            f"Through depth, gradients reach farther with {words}: more than a hundred times as much is left.",
            "decimal logarithm of the share that is left, less that of a plain stack",
            over_seeds(lambda rows, stack=stack: log_kept(rows, stack=stack) - log_kept(rows, stack="plain")),
            above=STRONGER,
        )
        for name, stack, words in (
            ("residual", "residual", "residual connections"),
            ("residual-norm", "residual + norm", "residual connections and layer norm"),
        )
    ),
)

CLAIM = Claim(
    name="gradients",
    sentence="In recurrent networks gradients vanish or explode through time; gates, clipping, residuals and "
    "normalisation help.",
    source="Bengio et al. 1994; Pascanu et al. 2013, arXiv:1211.5063; Hochreiter and Schmidhuber 1997",
    method="The gradient of the last state is followed back to every earlier input, before and after training to "
    "remember the first symbol of a sequence of noise. Residuals and normalisation are a matter of depth: the same "
    "is done through a deep stack of layers.",
    conditions=conditions,
    measure=measure,
    figures=figures,
    statements=STATEMENTS,
    cost=30.0,
)

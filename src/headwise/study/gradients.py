"""Claim: gradients vanish or explode on their way through time; gates, clipping, residuals and norms are the cures."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.report.figures import Figure, Panel, Series
from headwise.report.statistics import mean_interval
from headwise.study.claim import Claim, Plan, Row, Verdict, column, distinct, mean_of, select_rows, series
from headwise.study.learning import train_network

SYMBOLS = 8  # to remember
CELLS: dict[str, type[nn.RNN] | type[nn.LSTM] | type[nn.GRU]] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
STACKS = ("plain", "residual", "residual + norm")
FAINT = 1e-30  # below this a float32 gradient is nothing


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


def conditions(plan: Plan) -> list[Condition]:
    """Cells as initialized and trained, a plain one with a large initialization, and stacks of layers."""
    width, reach = plan.pick((8, 8), (32, 32), (64, 128))
    steps = plan.pick(2, 250, 2000)
    fresh = [Condition(cell, "", 1.0, 0.0, 0, reach, width) for cell in CELLS]
    strong = Condition("rnn", "", 3.0, 0.0, 0, reach, width)
    trained = [Condition(cell, "", 1.0, 1.0, steps, reach, width) for cell in CELLS]
    clipping = [Condition("rnn", "", 3.0, clip, steps, reach, width) for clip in (0.0, 1.0)]
    stacks = [Condition("", stack, 1.0, 0.0, 0, reach, width) for stack in STACKS]
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
        return [{"distance": far, "gradient": norm} for far, norm in depth_gradients(c.stack, c.width, c.reach)]
    network, largest = Rememberer(c.cell, c.width, c.gain), [0.0]
    if c.steps:

        def loss() -> Tensor:
            length = int(torch.randint(2, c.reach + 1, ()))  # only from long ones nothing would be learned at first
            tokens, symbols = sample_sequences(32, length)
            return F.cross_entropy(network(tokens), symbols)

        train_network(
            network, loss, c.steps, rate=0.01, clip=c.clip, each=lambda step, loss, norm: largest.append(norm)
        )
    tokens, symbols = sample_sequences(256, c.reach)
    with torch.no_grad():
        accuracy = (network(tokens).argmax(-1) == symbols).float().mean().item()
    also = {"accuracy": accuracy, "largest_update": min(max(largest), 1e30)}
    return [{"distance": far, "gradient": norm, **also} for far, norm in time_gradients(network, tokens)]


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


def kept(rows: Sequence[Row]) -> float:
    """Gradient at the largest distance as a share of that at distance 1."""
    far = max(row["distance"] for row in rows)
    return mean_of(rows, "gradient", distance=far) / mean_of(rows, "gradient", distance=1)


def judge(rows: Sequence[Row]) -> Verdict:
    """Held if the plain gradient vanishes, the strong one explodes and every remedy works; in part if some do."""
    fresh = {cell: kept(select_rows(rows, cell=cell, gain=1.0, steps=0)) for cell in CELLS}
    steps = max(row["steps"] for row in rows)
    learned = {cell: mean_of(rows, "accuracy", cell=cell, gain=1.0, steps=steps) for cell in CELLS}
    free, clipped = (
        mean_interval(column(select_rows(rows, cell="rnn", gain=3.0, steps=steps, clip=clip), "accuracy")).value
        for clip in (0.0, 1.0)
    )
    largest = mean_of(rows, "largest_update", cell="rnn", gain=3.0, steps=steps, clip=0.0)
    depth = {stack: kept(select_rows(rows, stack=stack)) for stack in STACKS}
    reach = max(distinct(rows, "reach"))
    vanishes, explodes = fresh["rnn"] < 1e-3, largest > 10
    gates = learned["lstm"] > learned["rnn"] + 0.1 or learned["gru"] > learned["rnn"] + 0.1
    residual = min(depth["residual"], depth["residual + norm"]) > 100 * depth["plain"]
    clipping = clipped > free + 0.1
    parts = [vanishes, explodes, gates, residual, clipping]
    reason = (
        f"as initialised, {reach} positions leave {fresh['rnn']:.1g} of the gradient in the plain network but also "
        f"{fresh['lstm']:.1g} in the LSTM and {fresh['gru']:.1g} in the GRU: gates as such do not keep it, they let "
        f"training do so (remembered after {steps:,} updates: rnn {learned['rnn']:.0%}, lstm {learned['lstm']:.0%}, "
        f"gru {learned['gru']:.0%}; chance {1 / SYMBOLS:.0%}). The strong plain network's largest gradient is "
        f"{largest:.0f}, what it remembers is {free:.0%} without clipping and {clipped:.0%} with it. Through as many "
        f"layers {depth['plain']:.1g} is left, {depth['residual']:.1g} with residuals, {depth['residual + norm']:.1g} "
        "with normalisation too."
    )
    return Verdict("held" if all(parts) else "held in part" if any(parts) else "not held", reason)


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
    judge=judge,
    seeds={"toy": 1, "quick": 2, "full": 5},
    cost={"toy": 0.05, "quick": 1.2, "full": 60.0},
)

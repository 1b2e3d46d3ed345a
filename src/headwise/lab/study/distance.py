"""Claim: early information fades in a fixed-size state, while attention sees any distance directly."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from headwise.evaluate.pages.figures import Figure, Panel
from headwise.lab.study.claim import Claim, Plan, distinct, mean_of, select_rows, series_by
from headwise.lab.study.contenders import BOS, FIRST, make, matched, size
from headwise.lab.study.learning import train_network
from headwise.lab.study.statement import NoRows, Row, Statement, over_seeds
from headwise.pytorch.architectures.registry import Network

NETWORKS = ("lstm", "bahdanau", "conv", "transformer")
ATTENDING = ("bahdanau", "conv", "transformer")
SYMBOLS, KEYS = 8, 8
# One alphabet each for symbols, noise, keys, and items that carry a key and a symbol.
NOISE = FIRST + SYMBOLS
KEY = NOISE + SYMBOLS
ITEM = KEY + KEYS
VOCAB = ITEM + KEYS * SYMBOLS
PAIRS = 4  # items in a source of the recall task
CHANCE = 1 / SYMBOLS
BATCH = 32
RATE = 0.005
SOLVED = 0.95  # validation accuracy at the shortest distance with which the first stage ends
MARGIN = 0.1  # of accuracy


@dataclass(frozen=True)
class Condition:
    """One network on one task, trained on the shortest distance until it is solved, then on all of them."""

    task: str  # "copy" or "recall"
    network: str
    width: int  # of the Transformer; the others have as many parameters
    layers: int
    distances: tuple[int, ...]  # ascending
    first: int  # most updates at the shortest distance
    steps: int  # updates at all distances
    rate: float  # learning rate
    device: str


def conditions(plan: Plan) -> list[Condition]:
    """Both tasks for every network."""
    distances: dict[str, tuple[int, ...]] = plan.pick(
        dict.fromkeys(TASKS, (8, 16)), {"copy": (4, 16, 64), "recall": (4, 16, 64, 256)}
    )
    width, first, steps = plan.pick((32, 3, 3), (32, 4000, 1500))
    return [
        Condition(task, name, width, 2, distances[task], first, steps, RATE, plan.device)
        for task in TASKS
        for name in NETWORKS
    ]


@dataclass(frozen=True)
class Examples:
    """Sources without padding, decoder inputs, and the expected outputs at the last positions."""

    src: Int[Tensor, "batch src_len"]
    tgt_in: Int[Tensor, "batch tgt_len"]
    answer: Int[Tensor, "batch answers"]  # for the last positions of tgt_in


def sample_copy(batch: int, distance: int) -> Examples:
    """`distance` symbols, all of which are the output: each is written `distance` steps after it was read."""
    symbols = torch.randint(FIRST, FIRST + SYMBOLS, (batch, distance))
    return Examples(symbols, torch.cat([torch.full((batch, 1), BOS), symbols[:, :-1]], 1), symbols)


def sample_recall(batch: int, distance: int) -> Examples:
    """Four items among noise; given the key of the one `distance` positions before the end, write its symbol."""
    src = _noise(batch, distance + 1)
    keys = torch.rand(batch, KEYS).argsort(1)[:, :PAIRS]
    symbols = torch.randint(SYMBOLS, (batch, PAIRS))
    others = torch.rand(batch, distance).argsort(1)[:, : PAIRS - 1] + 1
    positions = torch.cat([torch.zeros(batch, 1, dtype=torch.long), others], 1)
    src.scatter_(1, positions, ITEM + keys * SYMBOLS + symbols)
    key = KEY + keys[:, :1]
    return Examples(src, torch.cat([key, key], 1), FIRST + symbols[:, :1])  # twice, for Bahdanau's attention


def _noise(batch: int, length: int) -> Int[Tensor, "batch length"]:
    return torch.randint(NOISE, NOISE + SYMBOLS, (batch, length))


TASKS = {"copy": sample_copy, "recall": sample_recall}


def answers(network: Network, examples: Examples, device: str) -> Float[Tensor, "batch answers vocab"]:
    """Logits at the positions of the answers."""
    src, tgt_in = examples.src.to(device), examples.tgt_in.to(device)
    hidden = network.states(src, tgt_in, torch.ones_like(src, dtype=torch.bool))
    return network.logits(hidden[:, -examples.answer.size(1) :])


def measure(condition: Condition, seed: int) -> list[Row]:
    """Accuracy at every distance after both stages of the training."""
    c = condition
    config = matched(c.network, c.width, c.layers, VOCAB, max_len=c.distances[-1] + 8)
    network, draw = make(config, c.device), TASKS[c.task]

    def loss(distances: Sequence[int]) -> Tensor:
        examples = draw(BATCH, distances[int(torch.randint(len(distances), ()))])
        return F.cross_entropy(
            answers(network, examples, c.device).flatten(0, 1), examples.answer.flatten().to(c.device)
        )

    def accuracy(distances: Sequence[int]) -> float:
        found = [answer_accuracy(network, draw(256, far), c.device) for far in distances]
        return sum(found) / len(found)

    near = c.distances[:1]
    first = train_network(network, lambda: loss(near), c.first, c.rate, until=lambda: accuracy(near) >= SOLVED)
    second = train_network(network, lambda: loss(c.distances), c.steps, c.rate)
    about = {"parameters": size(config), "reach": 1 + c.layers * (getattr(config, "kernel_width", 3) - 1)}
    about |= {"solved": first.finished, "first_updates": first.updates, "diverged": first.diverged + second.diverged}
    about["validation"] = accuracy(c.distances)
    return [
        {"distance": far, "accuracy": answer_accuracy(network, draw(256, far), c.device), **about}
        for far in c.distances
    ]


@torch.no_grad()
def answer_accuracy(network: Network, examples: Examples, device: str) -> float:
    """Share of correct answers, each given the correct ones before it."""
    return (answers(network, examples, device).argmax(-1).cpu() == examples.answer).float().mean().item()


def figures(rows: Sequence[Row]) -> list[Figure]:
    """Accuracy by distance, for each task."""
    reach = {"convolution sees": float(rows[0]["reach"])}
    panels = [
        Panel(
            f"{task.capitalize()}",
            "distance (positions)",
            "accuracy (share of answers)",
            series_by(select_rows(rows, task=task), "network", "distance", "accuracy"),
            marks=reach,
            levels={"chance": CHANCE},
            y_range=(0, 1.05),
        )
        for task in distinct(rows, "task")
    ]
    return [
        Figure(
            "distance",
            "The lstm has one state for the whole source; the others attend to it. The dotted line marks how far the "
            "encoder of the convolutional network sees by itself. All trained at the shortest distance first.",
            "Line charts of accuracy against distance for copying and recall, one line for each of four networks.",
            panels,
        )
    ]


def solved_accuracy(rows: Sequence[Row], task: str, network: str, far: bool) -> float:
    """Accuracy at the largest or the shortest distance of a network that solved the shortest, and still does."""
    chosen = [row for row in select_rows(rows, task=task, network=network) if row["solved"]]
    if not chosen:
        raise NoRows(f"{network} did not solve the shortest distance of {task}")
    distances = distinct(chosen, "distance")
    if mean_of(chosen, "accuracy", distance=min(distances)) < SOLVED - MARGIN:
        raise NoRows(f"{network} no longer solves the shortest distance of {task}")
    return mean_of(chosen, "accuracy", distance=max(distances) if far else min(distances))


def lost(rows: Sequence[Row], task: str, network: str) -> float:
    """Accuracy at the shortest distance less that at the largest."""
    near, far = (solved_accuracy(rows, task, network, end) for end in (False, True))
    return near - far


def accuracy_lead(rows: Sequence[Row], task: str, network: str) -> float:
    """Accuracy at the largest distance less that of the LSTM."""
    own, lstm = (solved_accuracy(rows, task, name, far=True) for name in (network, "lstm"))
    return own - lstm


STATEMENTS = tuple(
    statement
    for task in TASKS
    for statement in (
        Statement(
            f"{task}-lstm-fades",
            f"{task}: the LSTM's accuracy falls with distance, by more than {MARGIN:g}.",
            "accuracy at the shortest distance less that at the largest",
            over_seeds(lambda rows, task=task: lost(rows, task, "lstm")),
            above=MARGIN,
            primary=task == "recall",
        ),
        *(
            Statement(
                f"{task}-{network}-level",
                f"{task}: the accuracy of {network} does not fall with distance by {MARGIN:g} or more.",
                "accuracy at the shortest distance less that at the largest",
                over_seeds(lambda rows, task=task, network=network: lost(rows, task, network)),
                below=MARGIN,
            )
            for network in ATTENDING
        ),
        *(
            Statement(
                f"{task}-{network}-leads",
                f"{task}: at the largest distance {network} is more accurate than the LSTM, by more than {MARGIN:g}.",
                "accuracy less that of the LSTM",
                over_seeds(lambda rows, task=task, network=network: accuracy_lead(rows, task, network)),
                above=MARGIN,
            )
            for network in ATTENDING
        ),
    )
)

CLAIM = Claim(
    name="distance",
    sentence="Early information fades in a fixed-size state; attention sees any distance directly.",
    source="Bahdanau et al. 2015, arXiv:1409.0473, section 1; Vaswani et al. 2017, arXiv:1706.03762, section 4",
    method="Copy: write all symbols of the source, which are as many as the distance, so there is ever more to "
    "remember. Recall: four items that carry a key and a symbol lie in noise, and the key of the first is given. The "
    "project's own networks, with equal parameters, train at the shortest distance until they solve it, then with "
    "equally many updates at all distances. Differences count only seeds in which every compared network solved the "
    "shortest distance, and still does at the end.",
    conditions=conditions,
    measure=measure,
    figures=figures,
    statements=STATEMENTS,
    cost=120.0,
)

"""Claim: early information fades in a fixed-size state, while attention sees any distance directly."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from headwise.architectures.registry import Network
from headwise.report.figures import Figure, Panel
from headwise.report.statistics import paired_difference
from headwise.study.claim import Claim, Plan, Row, Verdict, column, distinct, mean_of, select_rows, series_by
from headwise.study.contenders import BOS, FIRST, make, matched, size
from headwise.study.learning import train_network

NETWORKS = ("lstm", "bahdanau", "conv", "transformer")
ATTENDING = ("bahdanau", "conv", "transformer")
SYMBOLS, COPIED, KEYS = 8, 4, 8
# One alphabet each for symbols, noise, keys, and items that carry a key and a symbol.
NOISE = FIRST + SYMBOLS
KEY = NOISE + SYMBOLS
ITEM = KEY + KEYS
VOCAB = ITEM + KEYS * SYMBOLS
PAIRS = 4  # items in a source of the recall task
CHANCE = 1 / SYMBOLS
BATCH = 32


@dataclass(frozen=True)
class Condition:
    """One network on one task, trained on all distances together."""

    task: str  # "copy" or "recall"
    network: str
    width: int  # of the Transformer; the others have as many parameters
    layers: int
    distances: tuple[int, ...]  # ascending
    steps: int
    device: str


def conditions(plan: Plan) -> list[Condition]:
    """Both tasks for every network."""
    distances = plan.pick((8, 16), (4, 8, 16, 32, 64), (4, 8, 16, 32, 64, 128, 256, 512))
    width, steps = plan.pick((32, 3), (32, 500), (64, 4000))  # after 200 steps, recall is only sometimes learned
    return [Condition(task, name, width, 2, distances, steps, plan.device) for task in TASKS for name in NETWORKS]


@dataclass(frozen=True)
class Examples:
    """Sources without padding, decoder inputs, and the expected outputs at the last positions."""

    src: Int[Tensor, "batch src_len"]
    tgt_in: Int[Tensor, "batch tgt_len"]
    answer: Int[Tensor, "batch answers"]  # for the last positions of tgt_in


def sample_copy(batch: int, distance: int) -> Examples:
    """Four symbols, then noise; the first symbol is `distance` positions before the end. The output is the four."""
    symbols = torch.randint(FIRST, FIRST + SYMBOLS, (batch, COPIED))
    src = torch.cat([symbols, _noise(batch, distance + 1 - COPIED)], 1)
    tgt_in = torch.cat([torch.full((batch, 1), BOS), symbols[:, :-1]], 1)
    return Examples(src, tgt_in, symbols)


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
    """Accuracy at every distance after one training on all of them."""
    c = condition
    config = matched(c.network, c.width, c.layers, VOCAB, max_len=c.distances[-1] + 8)
    network, draw = make(config, c.device), TASKS[c.task]

    def loss() -> Tensor:
        examples = draw(BATCH, c.distances[int(torch.randint(len(c.distances), ()))])
        return F.cross_entropy(
            answers(network, examples, c.device).flatten(0, 1), examples.answer.flatten().to(c.device)
        )

    train_network(network, loss, c.steps, rate=0.005)
    about = {"parameters": size(config), "reach": 1 + c.layers * (getattr(config, "kernel_width", 3) - 1)}
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
            "encoder of the convolutional network sees by itself.",
            "Line charts of accuracy against distance for copying and recall, one line for each of four networks.",
            panels,
        )
    ]


def judge(rows: Sequence[Row]) -> Verdict:
    """Held if, at the largest distance, those that attend beat the one that does not, on both tasks."""
    far = max(row["distance"] for row in rows)
    parts, sentences = [], []
    for task in distinct(rows, "task"):
        at = {name: select_rows(rows, task=task, network=name, distance=far) for name in NETWORKS}
        without = mean_of(at["lstm"], "accuracy")
        near = mean_of(
            select_rows(rows, task=task, network="lstm", distance=min(row["distance"] for row in rows)), "accuracy"
        )
        better = [
            name
            for name in ATTENDING
            if mean_of(at[name], "accuracy") > without + 0.1
            and (
                len(at[name]) < 3
                or paired_difference(column(at[name], "accuracy"), column(at["lstm"], "accuracy")).significant
            )
        ]
        parts += [name in better for name in ATTENDING] + [near > without + 0.05]
        shown = ", ".join(f"{name} {mean_of(at[name], 'accuracy'):.0%}" for name in ATTENDING)
        sentences.append(f"{task}: lstm {without:.0%} ({near:.0%} at the shortest), {shown}")
    reason = (
        f"at distance {far} with equal parameters and updates, {'; '.join(sentences)}; chance is {CHANCE:.0%}. The "
        "convolutional "
        f"network reaches beyond the {rows[0]['reach']} positions its encoder sees because its decoder attends."
    )
    return Verdict("held" if all(parts) else "held in part" if any(parts) else "not held", reason)


CLAIM = Claim(
    name="distance",
    sentence="Early information fades in a fixed-size state; attention sees any distance directly.",
    source="Bahdanau et al. 2015, arXiv:1409.0473, section 1; Vaswani et al. 2017, arXiv:1706.03762, section 4",
    method="Copy: write the four symbols that stand before a stretch of noise. Recall: four items that carry a key "
    "and a symbol lie in noise, and the key of one is given. The project's own networks learn at all distances "
    "at once, with equal parameters and equally many updates.",
    conditions=conditions,
    measure=measure,
    figures=figures,
    judge=judge,
    seeds={"toy": 1, "quick": 1, "full": 5},
    cost={"toy": 0.1, "quick": 10.0, "full": 300.0},
)

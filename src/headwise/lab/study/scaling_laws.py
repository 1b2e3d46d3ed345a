"""Claim: it scales. Loss of a character model against parameters and against text read, with fitted exponents."""

import gzip
import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.core.build import count_parameters
from headwise.core.masks import causal_mask
from headwise.core.positions import SinusoidalPositions, sequential_positions
from headwise.errors import UserError
from headwise.evaluate.pages.figures import Figure, Panel, Series
from headwise.lab.study.claim import RATES, Claim, Plan, growth, select_rows, series
from headwise.lab.study.contenders import encoder_layers, width_for
from headwise.lab.study.learning import train_network
from headwise.lab.study.statement import NoRows, Row, Statement, over_seeds

NETWORKS = ("transformer", "lstm")
CONTEXT = 64  # characters
FILE = Path("lm") / "tinyshakespeare.txt.gz"
GENERATED = "generated text"
RATE = 0.01  # learning rate of width 1; it falls with width ** -0.25
HELD_OUT = 0.05  # share at the end of the text, half of it for validation and half for the test


@dataclass(frozen=True)
class Condition:
    """One network; it reads the text at most once."""

    network: str
    width: int  # of the Transformer; the LSTM has as many parameters
    updates: int
    batch: int  # windows of CONTEXT characters per update
    text: str  # file, or GENERATED
    digest: str  # of the text, so that another text is measured anew
    device: str
    rate: float  # learning rate


def conditions(plan: Plan) -> list[Condition]:
    """Widths for the parameters, lengths of training for the characters read."""
    widths = plan.pick((8, 12, 16), (8, 16, 32), (16, 32, 64, 128, 256))
    updates = plan.pick((1, 2, 3), (40, 80, 160), (250, 500, 1000, 2000, 4000))
    path = str(plan.data / FILE) if plan.data and (plan.data / FILE).is_file() else GENERATED
    text = hashlib.sha256(read_text(path).encode()).hexdigest()[:16]
    sizes = [(width, updates[-1]) for width in widths]
    lengths = [(widths[-1], steps) for steps in updates[:-1]]
    batch = plan.pick(2, 16, 32)
    return [
        Condition(name, width, steps, batch, path, text, plan.device, RATE * rate)
        for width, steps in sizes + lengths
        for name in NETWORKS
        for rate in RATES
    ]


@cache
def read_text(path: str) -> str:
    """The text of a file, or a generated one."""
    if path == GENERATED:
        return generate_text(300_000)
    try:
        return gzip.decompress(Path(path).read_bytes()).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as gzipped UTF-8 text ({error})") from None


def generate_text(length: int) -> str:
    """Sentences of invented words with fixed transition probabilities, for structure at every scale."""
    rng = random.Random(1)
    syllables = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
    words = ["".join(rng.choices(syllables, k=rng.choice((1, 2, 2, 3)))) for _ in range(300)]
    after = {word: rng.choices(words, k=8) for word in words}
    text, word = [], words[0]
    while sum(map(len, text[-1:])) + len(text) * 5 < length:
        word = rng.choice(after[word]) if rng.random() < 0.9 else rng.choice(words)
        text.append(word + (". " if rng.random() < 0.1 else " "))
    return "".join(text)


class CharacterTransformer(nn.Module):
    """The project's encoder layers (pre-norm) with a causal mask."""

    def __init__(self, n_characters: int, width: int, n_layers: int = 2, n_heads: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(n_characters, width)
        self.positions = SinusoidalPositions(width)
        self.layers = encoder_layers(n_layers, width, 4 * width, n_heads)
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, n_characters)

    def forward(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length characters"]:
        """Logits of the next character at every position."""
        x = self.embedding(tokens) + self.positions(*sequential_positions(tokens))
        mask = causal_mask(tokens.size(1), tokens.size(1), tokens.device)[None, None]
        for layer in self.layers:
            x = layer(x, mask)
        return self.output(self.norm(x))


class CharacterLSTM(nn.Module):
    """Two layers of torch's LSTM."""

    def __init__(self, n_characters: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(n_characters, width)
        self.rnn = nn.LSTM(width, width, 2, batch_first=True)
        self.output = nn.Linear(width, n_characters)

    def forward(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length characters"]:
        """Logits of the next character at every position."""
        return self.output(self.rnn(self.embedding(tokens))[0])


def build_character_network(name: str, n_characters: int, width: int) -> CharacterTransformer | CharacterLSTM:
    """The network; an LSTM gets a width with as many parameters as the Transformer of `width`."""
    transformer = CharacterTransformer(n_characters, width)
    if name == "transformer":
        return transformer
    own = width_for(
        count_parameters(transformer), lambda w: count_parameters(CharacterLSTM(n_characters, w)), 8 * width
    )
    return CharacterLSTM(n_characters, own)


def measure(condition: Condition, seed: int) -> list[Row]:
    """Loss on held-out text, in nats a character."""
    c = condition
    text = read_text(c.text)
    characters = {character: number for number, character in enumerate(sorted(set(text)))}
    ids = torch.tensor([characters[character] for character in text], device=c.device)
    half = int(HELD_OUT * len(ids) / 2)
    train, valid, test = ids.split([len(ids) - 2 * half, half, half])
    network = build_character_network(c.network, len(characters), c.width).to(c.device)
    training = train_network(
        network,
        lambda: next_character_loss(network, sample_windows(train, c.batch)),
        c.updates,
        c.rate * c.width**-0.25,
    )
    read = c.updates * c.batch * CONTEXT
    losses = {"validation": -held_out_loss(network, valid), "loss": held_out_loss(network, test)}
    return [{**losses, "diverged": training.diverged, "parameters": count_parameters(network), "read": read}]


@torch.no_grad()
def held_out_loss(network: nn.Module, ids: Int[Tensor, " text"]) -> float:
    """The loss on the first windows of a text, nats per character."""
    losses = [next_character_loss(network, part).item() for part in ids.unfold(0, CONTEXT + 1, CONTEXT).split(64)[:8]]
    return sum(losses) / len(losses)


def sample_windows(ids: Int[Tensor, " text"], batch: int) -> Int[Tensor, "batch length"]:
    """Random windows, one character longer than the context."""
    starts = torch.randint(len(ids) - CONTEXT - 1, (batch, 1)).to(ids.device)
    return ids[starts + torch.arange(CONTEXT + 1, device=ids.device)]


def next_character_loss(network: nn.Module, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, ""]:
    """Mean negative log-likelihood of every character but the first, nats."""
    return F.cross_entropy(network(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def by_parameters(rows: Sequence[Row]) -> list[Row]:
    """The rows with the longest training, which differ in size."""
    return select_rows(rows, updates=max(row["updates"] for row in rows))


def by_reading(rows: Sequence[Row]) -> list[Row]:
    """The rows of the largest networks, which differ in training."""
    return select_rows(rows, width=max(row["width"] for row in rows))


def figures(rows: Sequence[Row]) -> list[Figure]:
    """Loss against parameters, and against characters read."""
    text = "generated text" if rows[0]["text"] == GENERATED else "tiny Shakespeare"
    panels = [
        Panel(title, label, "held-out loss (nats per character)", _lines(chosen, x), log_y=True)
        for title, label, x, chosen in (
            ("Size", "parameters", "parameters", by_parameters(rows)),
            ("Reading", "characters read in training", "read", by_reading(rows)),
        )
    ]
    return [
        Figure(
            "scaling-laws",
            f"Character models on {text}: both axes are logarithmic, so a power law is a straight line.",
            "Two line charts of loss against parameters and against characters read, for a Transformer and an LSTM.",
            panels,
        )
    ]


def _lines(rows: Sequence[Row], x: str) -> list[Series]:
    return [series(select_rows(rows, network=name), name, x, "loss") for name in NETWORKS]


def exponents(rows: Sequence[Row], by: str) -> dict[str, float]:
    """The exponent of the loss of each network by "parameters" or by "read"."""
    chosen = by_parameters(rows) if by == "parameters" else by_reading(rows)
    try:
        return {name: fit.exponent.value for name, fit in growth(chosen, "loss", by).items()}
    except ValueError as error:
        raise NoRows(str(error)) from None


def steeper(rows: Sequence[Row], by: str) -> float:
    """Exponent of the Transformer less that of the LSTM."""
    found = exponents(rows, by)
    return found["transformer"] - found["lstm"]


STATEMENTS = (
    *(
        Statement(
            f"{network}-{by}",
            f"{network}: loss falls with {of}.",
            f"exponent of the loss by {of}",
            over_seeds(lambda rows, by=by, network=network: exponents(rows, by)[network]),
            below=0.0,
        )
        for network in NETWORKS
        for by, of in (("parameters", "parameters"), ("read", "characters read"))
    ),
    Statement(
        "steeper-parameters",
        "With more parameters the Transformer's loss falls faster than the LSTM's.",
        "exponent of the loss by parameters, Transformer less LSTM",
        over_seeds(lambda rows: steeper(rows, "parameters")),
        below=0.0,
    ),
    Statement(
        "steeper-read",
        "With more text the Transformer's loss falls faster than the LSTM's.",
        "exponent of the loss by characters read, Transformer less LSTM",
        over_seeds(lambda rows: steeper(rows, "read")),
        below=0.0,
    ),
)

CLAIM = Claim(
    name="scaling-laws",
    sentence="It scales: loss falls as a power of parameters and of data, and better than a recurrent network's.",
    source="Kaplan et al. 2020, arXiv:2001.08361, sections 3.2 and 3.3",
    method="Character models of growing size read the same text, and the largest of them read more and less of it. "
    "Transformer and LSTM have the same parameters within 5 %; exponents are least-squares slopes on logarithms.",
    conditions=conditions,
    measure=measure,
    figures=figures,
    statements=STATEMENTS,
    seeds={"toy": 2, "quick": 3, "full": 3},
    cost={"toy": 0.1, "quick": 1.5, "full": 300.0},
    tuned=True,
)

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

from headwise.errors import UserError
from headwise.network.masks import causal_mask
from headwise.network.parameters import count_parameters
from headwise.network.positions import SinusoidalPositions, sequential_positions
from headwise.report.figures import Figure, Panel, Series
from headwise.study.claim import Claim, Plan, Row, Verdict, growth, mean_of, select_rows, series
from headwise.study.contenders import encoder_layers, width_for
from headwise.study.learning import train_network

NETWORKS = ("transformer", "lstm")
CONTEXT = 64  # characters
FILE = Path("lm") / "tinyshakespeare.txt.gz"
GENERATED = "generated text"
HELD_OUT = 0.05  # share at the end of the text, to measure the loss on


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


def conditions(plan: Plan) -> list[Condition]:
    """Widths for the parameters, lengths of training for the characters read."""
    widths = plan.pick((8, 12, 16), (8, 16, 32), (16, 32, 64, 128, 256))
    updates = plan.pick((1, 2, 3), (50, 100, 200), (250, 500, 1000, 2000, 4000))
    path = str(plan.data / FILE) if plan.data and (plan.data / FILE).is_file() else GENERATED
    text = hashlib.sha256(read_text(path).encode()).hexdigest()[:16]
    sizes = [(width, updates[-1]) for width in widths]
    lengths = [(widths[-1], steps) for steps in updates[:-1]]
    batch = plan.pick(2, 16, 32)
    return [
        Condition(name, width, steps, batch, path, text, plan.device)
        for width, steps in sizes + lengths
        for name in NETWORKS
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
    train, held_out = ids.split([len(ids) - int(HELD_OUT * len(ids)), int(HELD_OUT * len(ids))])
    network = build_character_network(c.network, len(characters), c.width).to(c.device)
    train_network(
        network,
        lambda: next_character_loss(network, sample_windows(train, c.batch)),
        c.updates,
        rate=0.01 * c.width**-0.25,
    )
    with torch.no_grad():
        losses = [
            next_character_loss(network, part).item() for part in held_out.unfold(0, CONTEXT + 1, CONTEXT).split(64)[:8]
        ]
    read = c.updates * c.batch * CONTEXT
    return [{"loss": sum(losses) / len(losses), "parameters": count_parameters(network), "read": read}]


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


def judge(rows: Sequence[Row]) -> Verdict:
    """Held if both exponents of the Transformer are significantly below zero, and in size below the LSTM's."""
    size, reading = growth(by_parameters(rows), "loss", "parameters"), growth(by_reading(rows), "loss", "read")
    falls = [fit["transformer"].exponent.high < 0 for fit in (size, reading)]
    steeper = size["transformer"].exponent.high < size["lstm"].exponent.low
    largest = by_reading(by_parameters(rows))
    loss = {name: mean_of(largest, "loss", network=name) for name in NETWORKS}
    shown = "; ".join(
        f"{name}: parameters^{size[name].exponent}, characters^{reading[name].exponent}, loss at the largest "
        f"{loss[name]:.3f}"
        for name in NETWORKS
    )
    better = "steeper than the LSTM's" if steeper else "not surely steeper than the LSTM's"
    text = "generated text, which has little to scale on" if rows[0]["text"] == GENERATED else "tiny Shakespeare"
    reason = f"on {text}, loss falls as {shown}. The Transformer's exponent of size is {better} over this short range."
    return Verdict("held" if all(falls) and steeper else "held in part" if any(falls) else "not held", reason)


CLAIM = Claim(
    name="scaling-laws",
    sentence="It scales: loss falls as a power of parameters and of data, and better than a recurrent network's.",
    source="Kaplan et al. 2020, arXiv:2001.08361, sections 3.2 and 3.3",
    method="Character models of growing size read the same text, and the largest of them read more and less of it. "
    "Transformer and LSTM have the same parameters within 5 %; exponents are least-squares slopes on logarithms.",
    conditions=conditions,
    measure=measure,
    figures=figures,
    judge=judge,
    seeds={"toy": 1, "quick": 2, "full": 3},
    cost={"toy": 0.1, "quick": 3.0, "full": 300.0},
)

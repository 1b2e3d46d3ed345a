"""Trainings of character models that several claims share: scaling, ablations, and transfer from pre-training."""

import gzip
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.core.build import count_parameters
from headwise.core.layers import EncoderLayer, FeedForward, Sublayer
from headwise.core.masks import causal_mask
from headwise.core.positions import SinusoidalPositions, sequential_positions
from headwise.errors import UserError
from headwise.lab.study.claim import Plan
from headwise.lab.study.contenders import encoder_layers, width_for
from headwise.lab.study.learning import train_network
from headwise.lab.study.statement import Row

TRANSFORMER, LSTM = "transformer", "lstm"
NO_RESIDUAL, NO_FEED_FORWARD = "no residual connections", "no feed-forward layers"
CONTEXT = 64  # characters
TEXT, OTHER = "tinyshakespeare", "wikitext2.valid"  # the latter for pre-training
LENGTH = 300_000  # characters of a generated text
RATE = 0.01  # learning rate of width 1; it falls with width ** -0.25
HELD_OUT = 0.05  # share at the end of the text, half of it for validation and half for the test


@dataclass(frozen=True)
class Condition:
    """One network, trained on random windows of a text."""

    network: str
    width: int  # of the Transformer; other networks have as many parameters
    layers: int
    steps: int
    batch: int  # windows of CONTEXT characters per update
    text: str
    folder: str  # of the text; empty: it is generated
    device: str
    rate: float  # learning rate
    pretraining: int = 0  # updates on another text before
    characters: int = 0  # of the text at its front that are used for training; 0 = all


def character_condition(plan: Plan, network: str, width: int, layers: int, steps: int) -> Condition:
    """A network on the text of the plan."""
    path = plan.file(f"lm/{TEXT}.txt.gz")
    text, folder = (TEXT, str(Path(path).parent)) if path else ("generated", "")
    return Condition(network, width, layers, steps, plan.pick(2, 32), text, folder, plan.device, RATE)


@cache
def read_text(folder: str, name: str) -> str:
    """A text of the folder; without one a generated text, another for another name."""
    if not folder:
        return generate_text(LENGTH, seed=1 + (name == OTHER))
    path = Path(folder) / f"{name}.txt.gz"
    try:
        return gzip.decompress(path.read_bytes()).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as gzipped UTF-8 text ({error})") from None


def generate_text(length: int, seed: int) -> str:
    """Sentences of invented words with fixed transition probabilities, for structure at every scale."""
    rng = random.Random(seed)
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

    def __init__(self, n_characters: int, width: int, n_layers: int, n_heads: int = 2) -> None:
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
    """Torch's LSTM."""

    def __init__(self, n_characters: int, width: int, n_layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(n_characters, width)
        self.rnn = nn.LSTM(width, width, n_layers, batch_first=True)
        self.output = nn.Linear(width, n_characters)

    def forward(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length characters"]:
        """Logits of the next character at every position."""
        return self.output(self.rnn(self.embedding(tokens))[0])


class WithoutResidual(Sublayer):
    """f(norm(x)) instead of x + f(norm(x))."""

    def forward(self, x: Tensor, function: Callable[..., Tensor], *arguments: object) -> Tensor:
        """Same shape in and out."""
        return function(self.norm(x), *arguments)


class NoFeedForward(FeedForward):
    """Adds nothing, and has no parameters."""

    def __init__(self) -> None:
        nn.Module.__init__(self)

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        """Zeros."""
        return torch.zeros_like(x)


def ablated(network: CharacterTransformer, name: str) -> CharacterTransformer:
    """The network without a part of its layers."""
    for layer in network.layers:
        assert isinstance(layer, EncoderLayer)
        if name == NO_RESIDUAL:
            layer.self_attn_sublayer = WithoutResidual(layer.self_attn_sublayer.norm, 0.0, norm_first=True)
            layer.ffn_sublayer = WithoutResidual(layer.ffn_sublayer.norm, 0.0, norm_first=True)
        if name == NO_FEED_FORWARD:
            layer.ffn = NoFeedForward()
    return network


def build_character_network(
    name: str, n_characters: int, width: int, n_layers: int = 2
) -> CharacterTransformer | CharacterLSTM:
    """The network with as many parameters as the Transformer of `width`; one without a part is wider."""

    def make(width: int) -> CharacterTransformer | CharacterLSTM:
        if name == LSTM:
            return CharacterLSTM(n_characters, width, n_layers)
        return ablated(CharacterTransformer(n_characters, 2 * width, n_layers), name)  # divisible by two heads

    if name == TRANSFORMER:
        return make(width // 2)
    target = count_parameters(CharacterTransformer(n_characters, width, n_layers))
    return make(width_for(target, lambda own: count_parameters(make(own)), 8 * width))


def measure(condition: Condition, seed: int) -> list[Row]:
    """Loss on held-out text, in nats per character."""
    c = condition
    text = read_text(c.folder, c.text)
    characters = {character: number for number, character in enumerate(sorted(set(text)))}

    def ids_of(text: str) -> Int[Tensor, " text"]:
        return torch.tensor([characters[one] for one in text if one in characters], device=c.device)

    ids = ids_of(text)
    half = int(HELD_OUT * len(ids) / 2)
    train, valid, test = ids.split([len(ids) - 2 * half, half, half])
    train = train[: c.characters or None]
    network = build_character_network(c.network, len(characters), c.width, c.layers).to(c.device)

    def fit(ids: Int[Tensor, " text"], steps: int, rate: float) -> int:
        loss = lambda: next_character_loss(network, sample_windows(ids, c.batch))  # noqa: E731
        return train_network(network, loss, steps, rate * c.width**-0.25).diverged

    diverged = fit(ids_of(read_text(c.folder, OTHER)), c.pretraining, RATE) if c.pretraining else 0
    diverged += fit(train, c.steps, c.rate)
    losses = {"validation": -held_out_loss(network, valid), "loss": held_out_loss(network, test)}
    read = c.steps * c.batch * CONTEXT
    return [{**losses, "diverged": diverged, "parameters": count_parameters(network), "read": read}]


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

"""The compared architectures at equal parameter counts: small versions of the project's recipes.

The Transformer determines the number of parameters; the others get the width that comes nearest, within `TOLERANCE`.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache

import torch
from torch import nn

from headwise.config.model import ModelConfig
from headwise.config.settings import load_recipe
from headwise.core.attention import Kernel, MultiHeadAttention
from headwise.core.extensions.rotary import Rotary
from headwise.core.layers import EncoderLayer, FeedForward, Sublayer
from headwise.pytorch.architectures.registry import Network, build_network

TOLERANCE = 0.05  # of the parameter count
RECIPES = {"transformer": "paper-tiny"}  # recipes with other names than the contenders
ALL = ("rnn", "lstm", "gru", "bahdanau", "luong", "conv", "transformer")
PAD, BOS, FIRST = 0, 1, 2  # token ids; those of a task start at FIRST


def contender(name: str, width: int, layers: int, vocab_size: int, max_len: int) -> ModelConfig:
    """The recipe's network with this width and depth, without dropout and without reversed sources."""
    recipe = load_recipe(RECIPES.get(name, name)).model
    changes = {
        "vocab_size": vocab_size,
        "pad_id": PAD,
        "d_model": width,
        "n_encoder_layers": layers,
        "n_decoder_layers": layers,
        "dropout": 0.0,
        "reverse_source": False,
        "max_len": max_len,
        "d_ff": 2 * width,
        "n_heads": 4,
    }
    names = {field.name for field in fields(recipe)}
    return replace(recipe, **{name: value for name, value in changes.items() if name in names})


def matched(name: str, width: int, layers: int, vocab_size: int, max_len: int) -> ModelConfig:
    """`contender` with as many parameters as the Transformer of `width`."""

    def count(own_width: int) -> int:
        return size(contender(name, own_width, layers, vocab_size, max_len=1))  # excluded from the count

    target = size(contender("transformer", width, layers, vocab_size, max_len=1))
    own_width = width if name == "transformer" else width_for(target, count, 8 * width)
    return contender(name, own_width, layers, vocab_size, max_len)


def width_for(target: int, count: Callable[[int], int], largest: int) -> int:
    """The width up to `largest` whose `count`, which grows with it, is nearest to `target`.

    Raises:
        ValueError: even that differs by more than `TOLERANCE`.

    >>> width_for(10_000, lambda width: width**2, 500)
    100
    """
    low, high = 1, largest
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if count(middle) < target else (low, middle)
    best = min((width for width in (low - 1, low) if width > 0), key=lambda width: abs(count(width) - target))
    if abs(count(best) - target) > TOLERANCE * target:
        raise ValueError(f"no width up to {largest} has within {TOLERANCE:.0%} of {target:,} parameters")
    return best


@cache
def size(config: ModelConfig) -> int:
    """Parameters of a network without positional embeddings, which grow with the text and take part in no product."""
    with torch.random.fork_rng():
        parameters = build_network(config).named_parameters()
    return sum(parameter.numel() for name, parameter in parameters if "positions" not in name)


def make(config: ModelConfig, device: str) -> Network:
    """The network with fresh parameters."""
    return build_network(config).to(device)


def encoder_layers(
    n_layers: int,
    width: int,
    d_ff: int,
    n_heads: int,
    rotate: Rotary | None = None,
    d_k: int = 0,
    kernel: Kernel | None = None,
) -> nn.ModuleList:
    """A stack of pre-norm encoder layers without dropout; `d_k` 0 is the width divided by the heads."""
    d_head = width // n_heads
    return nn.ModuleList(
        EncoderLayer(
            MultiHeadAttention(width, n_heads, d_k or d_head, d_head, kernel=kernel, rotate=rotate),
            FeedForward(width, d_ff),
            Sublayer(nn.LayerNorm(width), 0.0, norm_first=True),
            Sublayer(nn.LayerNorm(width), 0.0, norm_first=True),
        )
        for _ in range(n_layers)
    )

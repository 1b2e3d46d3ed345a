"""From axes to the parts of a network."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn

from headwise.network.attention import DotProduct, Kernel, MultiHeadAttention
from headwise.network.axes import NetworkConfig, RotaryConfig, StackConfig
from headwise.network.embeddings import Embeddings, TypedEmbeddings
from headwise.network.feed_forward import ACTIVATIONS, FeedForward, GatedFeedForward
from headwise.network.heads import CappedLanguageHead, LanguageHead, ScaledLanguageHead
from headwise.network.kernels import Capped, Windowed
from headwise.network.layer_variants import SandwichSublayer
from headwise.network.layers import DecoderLayer, EncoderLayer, Sublayer
from headwise.network.masks import Causal, Everywhere
from headwise.network.norms import RMSNorm, ShiftedRMSNorm
from headwise.network.positions import (
    LearnedPositions,
    NoPositions,
    SinusoidalPositions,
    WithoutPadding,
    halved_sinusoids,
    numbered_in_order,
)
from headwise.network.relative import RelativeBias
from headwise.network.rotary import Rotary, scaled_rates
from headwise.network.stacks import Decoder, Encoder

FamilyNetwork = Any  # a Transformer, or one half of it (`halves.py`)


NORMS: dict[str, Callable[[int, float], nn.Module]] = {
    "layer": nn.LayerNorm,
    "layer_unbiased": lambda width, eps: nn.LayerNorm(width, eps, bias=False),
    "rms": RMSNorm,
    "rms_shifted": ShiftedRMSNorm,
}


POSITIONS: dict[str, Callable[[StackConfig, int], nn.Module]] = {
    "none": lambda c, width: NoPositions(),
    "learned": lambda c, width: LearnedPositions(width, c.max_len, c.position_offset),
    "sinusoidal_interleaved": lambda c, width: SinusoidalPositions(width, offset=c.position_offset),
    "sinusoidal": lambda c, width: SinusoidalPositions(width, halved_sinusoids, c.position_offset),
    "sinusoidal_tensor2tensor": lambda c, width: SinusoidalPositions(
        width, partial(halved_sinusoids, rate_steps=width // 2 - 1.0, dtype=torch.float32), c.position_offset
    ),
}


def encoder(c: StackConfig) -> Encoder:
    layers = [EncoderLayer(attention, ffn(c), sublayer(c), sublayer(c)) for attention in self_attentions(c)]
    return Encoder(layers, final_norm(c), _reach(c, Everywhere()))


def decoder(c: StackConfig) -> Decoder:
    layers = [
        DecoderLayer(own, cross, ffn(c), sublayer(c), sublayer(c), sublayer(c))
        for own, cross in zip(self_attentions(c), _cross_attentions(c), strict=True)
    ]
    return Decoder(layers, final_norm(c), _reach(c, Causal()))


def sublayer(c: StackConfig) -> Sublayer:
    if c.norm_position == "sandwich":
        return SandwichSublayer(norm(c, c.d_model), norm(c, c.d_model), c.dropout)
    return Sublayer(norm(c, c.d_model), c.dropout, norm_first=c.norm_position == "pre")


def ffn(c: StackConfig) -> FeedForward | GatedFeedForward:
    kind = GatedFeedForward if c.gated else FeedForward
    return kind(c.d_model, c.d_ff, ACTIVATIONS[c.activation], c.ffn_bias)


def norm(c: StackConfig, width: int) -> nn.Module:
    return NORMS[c.norm](width, c.norm_eps)


def final_norm(c: StackConfig) -> nn.Module | None:
    return None if c.norm_position == "post" else norm(c, c.d_model)


def _reach(c: StackConfig, reach: Everywhere | Causal) -> nn.Module:
    if not c.relative_buckets:
        return reach
    both_ways = isinstance(reach, Everywhere)
    return RelativeBias(c.n_heads, c.relative_buckets, c.relative_distance, both_ways, reach)


def self_attentions(c: StackConfig) -> list[MultiHeadAttention]:
    """One for each layer; what turns queries and keys is the same in all."""
    rotate = _rotary(c.rotary) if c.rotary else None
    windows, heads = c.windows or (0,) * c.n_layers, c.heads or (c.n_heads,) * c.n_layers
    return [_attention(c, n_heads, rotate, window) for n_heads, window in zip(heads, windows, strict=True)]


def _cross_attentions(c: StackConfig) -> list[MultiHeadAttention]:
    """One for each layer; positions of another sequence are nothing to turn by."""
    return [_attention(c, n_heads, None, 0) for n_heads in c.cross_heads or (c.n_heads,) * c.n_layers]


def _attention(c: StackConfig, n_heads: int, rotate: nn.Module | None, window: int) -> MultiHeadAttention:
    return MultiHeadAttention(
        c.d_model,
        n_heads,
        c.d_head,
        c.d_v or c.d_head,
        c.n_kv_heads,
        c.attention_bias,
        _kernel(c, window),
        q_norm=norm(c, c.d_head) if c.normalise_heads else None,
        k_norm=norm(c, c.d_head) if c.normalise_heads else None,
        rotate=rotate,
    )


def _kernel(c: StackConfig, window: int) -> Kernel:
    if not (c.score_cap or window):
        return DotProduct(c.score_scale)
    kernel = Capped(c.score_scale or c.d_head**-0.5, c.score_cap) if c.score_cap else DotProduct(c.score_scale)
    return Windowed(kernel, window) if window else kernel


def _rotary(c: RotaryConfig) -> nn.Module:
    with torch.device("cpu"):  # a fixed table, even where parameters take no memory
        return Rotary(scaled_rates(c))


def token_front(c: StackConfig, vocab_size: int) -> Embeddings:
    """What stands before a stack that reads tokens (section 3.4)."""
    width = c.d_embedding or c.d_model
    parts = {
        "dropout": c.dropout,
        "norm": norm(c, width) if c.embedding_norm else None,
        "project": nn.Linear(width, c.d_model) if width != c.d_model else None,
        "numbering": WithoutPadding(c.count_from) if c.count_from >= 0 else numbered_in_order,
    }
    tokens, codes = nn.Embedding(vocab_size, width), positions(c, width)
    if c.n_types:
        return TypedEmbeddings(nn.Embedding(c.n_types, width), tokens, codes, c.embedding_scale, **parts)
    return Embeddings(tokens, codes, c.embedding_scale, **parts)


def positions(c: StackConfig, width: int) -> nn.Module:
    with torch.device("cpu") if c.positions.startswith("sinusoidal") else nullcontext():
        return POSITIONS[c.positions](c, width)


def language_head(c: NetworkConfig, last: StackConfig) -> LanguageHead:
    output = nn.Linear(last.d_model, c.tgt_vocab_size or c.vocab_size, c.head_bias)
    if c.logit_cap:
        return CappedLanguageHead(output, c.logit_cap)
    return LanguageHead(output) if c.logit_scale == 1.0 else ScaledLanguageHead(output, c.logit_scale)

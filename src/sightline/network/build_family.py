"""From a family's configuration to modules: the only reader of `FamilyConfig` in this package.

Choices are strings, looked up once, here. `build.py` does the same for the paper's own network.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from sightline.network.attention_variants import (
    GroupedAttention,
    ScaledKernel,
    capped_kernel,
    sliding_window,
    unrestricted,
)
from sightline.network.family_config import FamilyConfig, RotaryConfig, StackConfig
from sightline.network.feed_forward import ACTIVATIONS, FeedForward, GatedFeedForward
from sightline.network.fronts import AudioFront, Front, PatchFront, TokenFront, TypedTokenFront
from sightline.network.layer_variants import ParallelLayer, SandwichSublayer
from sightline.network.layers import DecoderLayer, EncoderLayer, Sublayer
from sightline.network.masks import Causal, Everywhere
from sightline.network.networks import DecoderOnly, EncoderDecoder, EncoderOnly, TextStack
from sightline.network.norms import RMSNorm, ShiftedRMSNorm
from sightline.network.output_heads import (
    CappedLanguageHead,
    FirstStateHead,
    LanguageHead,
    MaskedLanguageHead,
    ReplacedTokenHead,
    TextClassHead,
    TokenClassHead,
)
from sightline.network.position_variants import (
    CountedPlaces,
    LearnedPlaces,
    NoPlaces,
    RelativeBias,
    Rotary,
    SinusoidalPlaces,
    Unrotated,
    halved_sinusoids,
    llama3_rates,
    rotary_rates,
    slowed_rates,
)
from sightline.network.stacks import Decoder, Encoder

FamilyNetwork = EncoderOnly | DecoderOnly | EncoderDecoder

NORMS: dict[str, Callable[[int, float], nn.Module]] = {
    "layer": nn.LayerNorm,
    "layer_unbiased": lambda width, eps: nn.LayerNorm(width, eps, bias=False),
    "rms": RMSNorm,
    "rms_shifted": ShiftedRMSNorm,
}
POSITIONS: dict[str, Callable[[StackConfig, int], nn.Module]] = {
    "none": lambda c, width: NoPlaces(),
    "learned": lambda c, width: LearnedPlaces(c.max_len, width, c.position_offset),
    "sinusoidal": lambda c, width: SinusoidalPlaces(partial(halved_sinusoids, d_model=width), c.position_offset),
    "sinusoidal_tensor2tensor": lambda c, width: SinusoidalPlaces(
        partial(halved_sinusoids, d_model=width, rate_steps=width // 2 - 1.0, dtype=torch.float32), c.position_offset
    ),
}
SCALINGS: dict[str, Callable[[Tensor, RotaryConfig], Tensor]] = {
    "none": lambda rates, c: rates,
    "linear": lambda rates, c: slowed_rates(rates, c.factor),
    "llama3": lambda rates, c: llama3_rates(rates, c.factor, c.low, c.high, c.trained_len),
}


def build_family(c: FamilyConfig) -> FamilyNetwork:
    """The network of that configuration, its parameters drawn by torch's defaults."""
    last = c.decoder or c.encoder
    assert last is not None, "a network has an encoder, a decoder or both"
    head = HEADS[c.head](c, last)
    if c.encoder is None:
        network = DecoderOnly(_token_front(last, c.vocab_size), _text_stack(last), head)
    elif c.decoder is None:
        network = EncoderOnly(FRONTS[c.front](c, c.encoder), _encoder(c.encoder), head)
    else:
        src_front, tgt_front = FRONTS[c.front](c, c.encoder), _token_front(c.decoder, c.tgt_vocab_size or c.vocab_size)
        if c.share_embeddings and isinstance(src_front, TokenFront):
            tgt_front.tokens = src_front.tokens
        network = EncoderDecoder(src_front, tgt_front, _encoder(c.encoder), _decoder(c.decoder), head)
    tie_head(network, c)
    return network.eval()


def build_unfilled(c: FamilyConfig) -> FamilyNetwork:
    """The same with parameters that take no memory and hold nothing, to be replaced; fixed tables are made."""
    with _NothingDrawn(), torch.device("meta"):
        return build_family(c)


class _NothingDrawn(TorchFunctionMode):
    """Skips `torch.nn.init`: on parameters without memory it does nothing, but loads torch's compiler to do so."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if getattr(function, "__module__", "") == "torch.nn.init":
            return args[0] if args else named["tensor"]
        return function(*args, **named)


def tie_head(network: FamilyNetwork, c: FamilyConfig) -> None:
    """Let the head's matrix be the table of embeddings, where they are one; needed again where either was replaced."""
    front = network.tgt_embeddings if isinstance(network, EncoderDecoder) else network.embeddings
    if c.tie_head and isinstance(front, TokenFront):
        network.head.get_submodule("output").weight = front.tokens.weight


def replace_parameter(network: nn.Module, name: str, tensor: Tensor) -> None:
    """Let the parameter called `name` be `tensor`, without a copy."""
    parent, _, leaf = name.rpartition(".")
    setattr(network.get_submodule(parent), leaf, nn.Parameter(tensor, requires_grad=False))


# --- Stacks ---


def _encoder(c: StackConfig) -> Encoder:
    layers = [EncoderLayer(attention, _ffn(c), lambda: _sublayer(c)) for attention in _attentions(c)]
    return Encoder(layers, _final_norm(c), _reach(c, Everywhere()))


def _text_stack(c: StackConfig) -> TextStack:
    return TextStack([_text_layer(c, attention) for attention in _attentions(c)], _final_norm(c))


def _decoder(c: StackConfig) -> Decoder:
    layers = [
        DecoderLayer(own, cross, _ffn(c), lambda: _sublayer(c))
        for own, cross in zip(_attentions(c), _attentions(c), strict=True)
    ]
    return Decoder(layers, _final_norm(c), _reach(c, Causal()))


def _text_layer(c: StackConfig, attention: GroupedAttention) -> EncoderLayer | ParallelLayer:
    if c.parallel == "no":
        return EncoderLayer(attention, _ffn(c), lambda: _sublayer(c))
    first = _sublayer(c)
    return ParallelLayer(attention, _ffn(c), first, first if c.parallel == "one_norm" else _sublayer(c))


def _sublayer(c: StackConfig) -> Sublayer:
    if c.norm_position == "sandwich":
        return SandwichSublayer(c.d_model, 0.0, _norm(c))
    return Sublayer(c.d_model, 0.0, norm_first=c.norm_position == "pre", norm=_norm(c))


def _ffn(c: StackConfig) -> FeedForward | GatedFeedForward:
    kind = GatedFeedForward if c.gated else FeedForward
    return kind(c.d_model, c.d_ff, ACTIVATIONS[c.activation], c.ffn_bias)


def _norm(c: StackConfig) -> Callable[[int], nn.Module]:
    return lambda width: NORMS[c.norm](width, c.norm_eps)


def _final_norm(c: StackConfig) -> nn.Module | None:
    return None if c.norm_position == "post" else _norm(c)(c.d_model)


def _reach(c: StackConfig, reach: Everywhere | Causal) -> nn.Module:
    if not c.relative_buckets:
        return reach
    both_ways = isinstance(reach, Everywhere)
    return RelativeBias(c.n_heads, c.relative_buckets, c.relative_distance, both_ways, reach)


# --- Attention ---


def _attentions(c: StackConfig) -> list[GroupedAttention]:
    """One for each layer; what turns queries and keys is the same in all."""
    rotate = _rotary(c.rotary) if c.rotary else Unrotated()
    return [_attention(c, rotate, window) for window in c.windows or (0,) * c.n_layers]


def _attention(c: StackConfig, rotate: nn.Module, window: int) -> GroupedAttention:
    scale = c.score_scale or c.d_head**-0.5
    return GroupedAttention(
        c.d_model,
        c.n_heads,
        c.n_kv_heads or c.n_heads,
        c.d_head,
        biased=c.attention_bias,
        q_norm=_norm(c)(c.d_head) if c.normalise_heads else nn.Identity(),
        k_norm=_norm(c)(c.d_head) if c.normalise_heads else nn.Identity(),
        rotate=rotate,
        narrow=sliding_window(window) if window else unrestricted,
        kernel=capped_kernel(scale, c.score_cap) if c.score_cap else ScaledKernel(scale),
    )


def _rotary(c: RotaryConfig) -> Rotary:
    with torch.device("cpu"):  # a fixed table, even where parameters take no memory
        return Rotary(SCALINGS[c.scaling](rotary_rates(c.width, c.base), c))


# --- Fronts ---


def _token_front(c: StackConfig, vocab_size: int) -> TokenFront:
    width = c.d_embedding or c.d_model
    with torch.device("cpu") if c.positions.startswith("sinusoidal") else nullcontext():
        positions = POSITIONS[c.positions](c, width)
    if c.count_from >= 0:
        positions = CountedPlaces(positions, c.count_from)
    norm = _norm(c)(width) if c.embedding_norm else nn.Identity()
    project = nn.Linear(width, c.d_model) if width != c.d_model else nn.Identity()
    parts = (nn.Embedding(vocab_size, width), c.embedding_scale, positions, norm, project)
    return TypedTokenFront(nn.Embedding(c.n_types, width), *parts) if c.n_types else TokenFront(*parts)


FRONTS: dict[str, Callable[[FamilyConfig, StackConfig], Front]] = {
    "tokens": lambda c, stack: _token_front(stack, c.vocab_size),
    "patches": lambda c, stack: PatchFront(stack.d_model, c.n_channels, c.image_size, c.patch_size, c.n_prefix),
    "audio": lambda c, stack: AudioFront(stack.d_model, c.n_mels, stack.max_len),
}


# --- Heads ---


def _language(c: FamilyConfig, last: StackConfig) -> LanguageHead:
    output = nn.Linear(last.d_model, c.tgt_vocab_size or c.vocab_size, c.head_bias)
    if c.logit_cap:
        return CappedLanguageHead(output, c.logit_scale, c.logit_cap)
    return LanguageHead(output, c.logit_scale)


def _masked(c: FamilyConfig, last: StackConfig) -> MaskedLanguageHead:
    width = last.d_embedding or last.d_model
    dense, output = nn.Linear(last.d_model, width), nn.Linear(width, c.vocab_size)
    return MaskedLanguageHead(dense, ACTIVATIONS[c.head_activation], _norm(last)(width), output)


def _replaced(c: FamilyConfig, last: StackConfig) -> ReplacedTokenHead:
    dense = nn.Linear(last.d_model, last.d_model)
    return ReplacedTokenHead(dense, ACTIVATIONS[c.head_activation], nn.Linear(last.d_model, 1))


def _text_class(c: FamilyConfig, last: StackConfig) -> TextClassHead:
    pool = nn.Linear(last.d_model, last.d_model)
    return TextClassHead(pool, ACTIVATIONS[c.head_activation], nn.Linear(last.d_model, c.n_classes))


def _image_class(c: FamilyConfig, last: StackConfig) -> FirstStateHead:
    return FirstStateHead([nn.Linear(last.d_model, c.n_classes) for _ in range(c.n_class_states)])


HEADS: dict[str, Callable[[FamilyConfig, StackConfig], nn.Module]] = {
    "none": lambda c, last: nn.Identity(),
    "language": _language,
    "masked": _masked,
    "replaced": _replaced,
    "text_class": _text_class,
    "token_class": lambda c, last: TokenClassHead(nn.Linear(last.d_model, c.n_classes)),
    "span": lambda c, last: TokenClassHead(nn.Linear(last.d_model, 2)),  # where an answer begins, where it ends
    "image_class": _image_class,
}

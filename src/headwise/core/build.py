"""Builds networks from their configuration (`config.network`): the only reader of it in this package.

Choices are strings, looked up once, here. A norm, an activation or a kind of positions is one class in its module and
one entry in a table.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headwise.config.network import NetworkConfig, RotaryConfig, StackConfig
from headwise.config.positions import scaled_rates
from headwise.core.attention import Capped, DotProduct, Kernel, MultiHeadAttention, Windowed
from headwise.core.embeddings import Embeddings, TypedEmbeddings
from headwise.core.extensions.disentangled import DisentangledAttention, RelativeVectors
from headwise.core.extensions.fronts import AudioFront, Front, PatchFront, SeriesEmbeddings
from headwise.core.extensions.pooled import POOLINGS, PooledEncoder
from headwise.core.extensions.relative import RelativeBias
from headwise.core.extensions.rotary import Rotary
from headwise.core.heads import (
    CappedLanguageHead,
    FirstStateHead,
    LanguageHead,
    MaskedLanguageHead,
    NormedTokenClassHead,
    ReplacedTokenHead,
    ScaledLanguageHead,
    TextClassHead,
    TokenClassHead,
)
from headwise.core.layers import (
    ACTIVATIONS,
    CausalStack,
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    GatedFeedForward,
    ParallelLayer,
    ProjectedEncoder,
    RMSNorm,
    SandwichSublayer,
    ShiftedRMSNorm,
    Sublayer,
)
from headwise.core.masks import Causal, Everywhere
from headwise.core.positions import (
    LearnedPositions,
    NoPositions,
    PositionsWithoutPadding,
    SinusoidalPositions,
    halved_sinusoids,
    sequential_positions,
    tensor2tensor_sinusoids,
)
from headwise.core.transformer import DecoderOnly, EncoderOnly, Transformer
from headwise.errors import UserError

# Parameters by name, as in `model.safetensors`. The names are a file format.


def parameters_of(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter once, shared ones under the first of their names; the tensors are the model's own."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def load_parameters(model: nn.Module, tensors: Mapping[str, Tensor], origin: str) -> None:
    """Copy `tensors` into `model`; on any mismatch, one `UserError` lists all of them and nothing is copied."""
    own = parameters_of(model)
    problems = [f"missing {name}" for name in own if name not in tensors]
    problems += [f"unexpected {name}" for name in tensors if name not in own]
    problems += [
        f"{name} is {list(tensors[name].shape)}, should be {list(value.shape)}"
        for name, value in own.items()
        if name in tensors and tensors[name].shape != value.shape
    ]
    if problems:
        more = f"; and {len(problems) - 20} more" if len(problems) > 20 else ""
        raise UserError(f"{origin} does not fit its configuration: {'; '.join(problems[:20])}{more}")
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(tensors[name])


def replace_parameter(network: nn.Module, name: str, tensor: Tensor) -> None:
    """Replace the parameter called `name` by `tensor`, without a copy."""
    parent, _, leaf = name.rpartition(".")
    setattr(network.get_submodule(parent), leaf, nn.Parameter(tensor, requires_grad=False))


def share_parameters(source: nn.Module, other: nn.Module) -> None:
    """Let `other`, a module of the same structure, have the parameters of `source`."""
    for name, parameter in source.named_parameters(remove_duplicate=False):
        parent, _, leaf = name.rpartition(".")
        setattr(other.get_submodule(parent), leaf, parameter)


def count_parameters(model: nn.Module) -> int:
    """Number of trained values, shared ones counted once."""
    return sum(parameter.numel() for parameter in model.parameters())


FamilyNetwork = Any  # a `Transformer`, `EncoderOnly` or `DecoderOnly`


def build(c: NetworkConfig) -> FamilyNetwork:
    """A network with random initial parameters from torch's global generator; it keeps its `config`."""
    network = _assemble(c)
    network.config = c
    initialize(network)
    tie(network, c)
    return network


def build_empty(c: NetworkConfig) -> FamilyNetwork:
    """A network whose parameters have no memory yet, to be replaced by those of a file; fixed tables are computed."""
    with empty_parameters():
        network = _assemble(c)
        network.config = c
        tie(network, c)
    return network.eval()


def build_pooled(c: StackConfig, front: nn.Module, pooling: str, n_outputs: int) -> PooledEncoder:
    """An encoder with pooled states and a linear output layer, with random initial parameters."""
    output = nn.Linear(c.d_model, n_outputs)
    network = PooledEncoder(front, _encoder(c), lambda states: states, POOLINGS[pooling], output, c.dropout)
    initialize(network)
    return network


def tie(network: FamilyNetwork, c: NetworkConfig) -> None:
    """Share the parameters that the model shares; call it again after replacing one of them.

    These are the head's matrix and the embedding table, and all parameters of the layers of a group. The layers stay
    modules of their own, so that each has its own hooks; their parameters have the names of the group's first layer.
    """
    front: Any = network.tgt_embeddings if isinstance(network, Transformer) else network.embeddings
    if c.tie_head and isinstance(front, Embeddings):
        network.head.get_submodule("output").weight = front.tokens.weight
    for name, stack in (("encoder", c.encoder), ("decoder", c.decoder)):
        if stack and stack.layer_groups:
            layers: Any = network.get_submodule(name).layers
            for i, first in enumerate(stack.first_of_groups):
                share_parameters(layers[first], layers[i])


def _assemble(c: NetworkConfig) -> FamilyNetwork:
    last = c.decoder or c.encoder
    assert last is not None, "a network has an encoder, a decoder or both"
    head = HEADS[c.head](c, last)
    if c.encoder is None:
        return DecoderOnly(token_front(last, c.vocab_size), _causal_stack(last), head)
    front = FRONTS[c.front](c, c.encoder)
    if c.decoder is None:
        return EncoderOnly(front, _encoder(c.encoder), head)
    tgt_front = token_front(c.decoder, c.tgt_vocab_size or c.vocab_size)
    if c.share_embeddings and isinstance(front, Embeddings):
        tgt_front.tokens = front.tokens
    encoder = _encoder(c.encoder)
    if c.encoder.d_model != (c.decoder.d_memory or c.decoder.d_model):
        encoder = ProjectedEncoder(encoder, nn.Linear(c.encoder.d_model, c.decoder.d_memory or c.decoder.d_model))
    return Transformer(front, tgt_front, encoder, _decoder(c.decoder), head)


# --- Initial parameters ---


def initialize(network: nn.Module) -> None:
    """Xavier-uniform weights and zero biases; the last projection of each sub-layer starts smaller.

    It is scaled by (2N)^-1/2 for a stack of N layers, as in GPT-2 (section 2.3 of its report); the paper does not
    specify this. Otherwise a post-norm model of several layers learns to use its source only after thousands of updates
    (benchmarks/results, quality). Embedding tables have standard deviation d_model^-1/2, or a quarter of it if they are
    scaled by d_model^1/2 and no positions are added: the table is also the output projection, and the first logits are
    then nearly equal. Positions would drown embeddings that small (benchmarks/results, early-lead).
    """
    gains = _residual_gains(network) | _embedding_gains(network)
    for module in network.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight, gain=gains.get(module, 1.0))
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=gains.get(module, 1.0) * module.embedding_dim**-0.5)


def _residual_gains(network: nn.Module) -> dict[nn.Module, float]:
    """The gain of the last projection of each sub-layer."""
    gains: dict[nn.Module, float] = {}
    for stack in (module for module in network.modules() if isinstance(module, Encoder | Decoder | CausalStack)):
        for module in stack.modules():
            if isinstance(module, MultiHeadAttention):
                gains[module.o_proj] = (2 * len(stack.layers)) ** -0.5
            elif isinstance(module, FeedForward | GatedFeedForward):
                gains[module.down_proj] = (2 * len(stack.layers)) ** -0.5
    return gains


def _embedding_gains(network: nn.Module) -> dict[nn.Module, float]:
    """The gain of the tables that are scaled and have no positions added."""
    fronts = (module for module in network.modules() if isinstance(module, Embeddings))
    return {front.tokens: 0.25 for front in fronts if front.scale > 1 and isinstance(front.positions, NoPositions)}


@contextmanager
def empty_parameters() -> Iterator[None]:
    """Inside, modules are created on the "meta" device, without initialisation."""
    with _SkipInit(), torch.device("meta"):
        yield


class _SkipInit(TorchFunctionMode):
    """Skips `torch.nn.init`: on the "meta" device it does nothing, but would load torch's compiler."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if getattr(function, "__module__", "") == "torch.nn.init":
            return args[0] if args else named["tensor"]
        return function(*args, **named)


# --- Stacks ---

NORMS: dict[str, Callable[[int, float], nn.Module]] = {
    "layer": nn.LayerNorm,
    "layer_unbiased": lambda width, eps: nn.LayerNorm(width, eps, bias=False),
    "rms": RMSNorm,
    "rms_shifted": ShiftedRMSNorm,
}


def _encoder(c: StackConfig) -> Encoder:
    layers = [
        EncoderLayer(attention, _ffn(c), _sublayer(c, normed=c.first_norm or i > 0), _sublayer(c))
        for i, attention in enumerate(_self_attentions(c))
    ]
    return Encoder(layers, _final_norm(c), _mask(c, Everywhere()))


def _decoder(c: StackConfig) -> Decoder:
    layers = [
        DecoderLayer(self_attn, cross_attn, _ffn(c), _sublayer(c), _sublayer(c), _sublayer(c))
        for self_attn, cross_attn in zip(_self_attentions(c), _cross_attentions(c), strict=True)
    ]
    return Decoder(layers, _final_norm(c), _mask(c, Causal()))


def _causal_stack(c: StackConfig) -> CausalStack:
    return CausalStack([_causal_layer(c, attention) for attention in _self_attentions(c)], _final_norm(c))


def _causal_layer(c: StackConfig, attention: MultiHeadAttention) -> EncoderLayer | ParallelLayer:
    if c.parallel == "no":
        return EncoderLayer(attention, _ffn(c), _sublayer(c), _sublayer(c))
    first = _sublayer(c)
    return ParallelLayer(attention, _ffn(c), first, first if c.parallel == "one_norm" else _sublayer(c))


def _sublayer(c: StackConfig, normed: bool = True) -> Sublayer:
    if c.norm_position == "sandwich":
        return SandwichSublayer(_norm(c, c.d_model), _norm(c, c.d_model), c.dropout)
    norm = _norm(c, c.d_model) if normed else nn.Identity()
    return Sublayer(norm, c.dropout, norm_first=c.norm_position == "pre")


def _ffn(c: StackConfig) -> FeedForward | GatedFeedForward:
    kind = GatedFeedForward if c.gated else FeedForward
    return kind(c.d_model, c.d_ff, ACTIVATIONS[c.activation], c.ffn_bias)


def _norm(c: StackConfig, width: int) -> nn.Module:
    return NORMS[c.norm](width, c.norm_eps)


def _final_norm(c: StackConfig) -> nn.Module | None:
    return None if c.norm_position == "post" else _norm(c, c.d_model)


# --- Attention ---


def _mask(c: StackConfig, mask: Everywhere | Causal) -> nn.Module:
    if not c.relative_buckets:
        return mask
    if c.disentangled:
        norm = _norm(c, c.d_model) if c.relative_norm else None
        return RelativeVectors(c.d_model, c.relative_buckets, c.relative_distance, norm, mask)
    bidirectional = isinstance(mask, Everywhere)
    return RelativeBias(c.n_heads, c.relative_buckets, c.relative_distance, bidirectional, mask)


def _self_attentions(c: StackConfig) -> list[MultiHeadAttention]:
    """One for each layer; they share one rotary module, or one for layers with a window and one for the others."""
    rotate = _rotary(c.rotary) if c.rotary else None
    near = _rotary(c.window_rotary) if c.window_rotary else rotate
    windows, heads = c.windows or (0,) * c.n_layers, c.heads or (c.n_heads,) * c.n_layers
    return [
        _attention(c, n_heads, near if window else rotate, window)
        for n_heads, window in zip(heads, windows, strict=True)
    ]


def _cross_attentions(c: StackConfig) -> list[MultiHeadAttention]:
    """One for each layer, never rotary."""
    return [_attention(c, n_heads, None, 0, c.d_memory) for n_heads in c.cross_heads or (c.n_heads,) * c.n_layers]


def _attention(
    c: StackConfig, n_heads: int, rotate: nn.Module | None, window: int, d_memory: int = 0
) -> MultiHeadAttention:
    parts = (c.d_model, n_heads, c.d_head, c.d_v or c.d_head, c.n_kv_heads, c.attention_bias, _kernel(c, window))
    if c.disentangled:
        return DisentangledAttention(c.disentangled, c.score_scale or c.d_head**-0.5, c.dropout, *parts)
    return MultiHeadAttention(
        *parts,
        q_norm=_norm(c, c.d_head) if c.normalise_heads else None,
        k_norm=_norm(c, c.d_head) if c.normalise_heads else None,
        rotate=rotate,
        d_memory=d_memory,
    )


def _kernel(c: StackConfig, window: int) -> Kernel:
    if not (c.score_cap or window):
        return DotProduct(c.score_scale)
    kernel = Capped(c.score_scale or c.d_head**-0.5, c.score_cap) if c.score_cap else DotProduct(c.score_scale)
    return Windowed(kernel, window) if window else kernel


def _rotary(c: RotaryConfig) -> nn.Module:
    with torch.device("cpu"):  # a fixed table, computed even inside `empty_parameters`
        return Rotary(torch.from_numpy(scaled_rates(**asdict(c))))


# --- Input layers ---

POSITIONS: dict[str, Callable[[StackConfig, int], nn.Module]] = {
    "none": lambda c, width: NoPositions(),
    "learned": lambda c, width: LearnedPositions(width, c.max_len, c.position_offset),
    "sinusoidal_interleaved": lambda c, width: SinusoidalPositions(width, offset=c.position_offset),
    "sinusoidal": lambda c, width: SinusoidalPositions(width, halved_sinusoids, c.position_offset),
    "sinusoidal_tensor2tensor": lambda c, width: SinusoidalPositions(width, tensor2tensor_sinusoids, c.position_offset),
}

FRONTS: dict[str, Callable[[NetworkConfig, StackConfig], Front]] = {
    "tokens": lambda c, stack: token_front(stack, c.vocab_size),
    "patches": lambda c, stack: PatchFront(
        stack.d_model, c.n_channels, c.image_size, c.patch_size, c.n_prefix, stack.dropout
    ),
    "audio": lambda c, stack: AudioFront(stack.d_model, c.n_mels, stack.max_len, stack.dropout),
}


def token_front(c: StackConfig, vocab_size: int) -> Embeddings:
    """The embeddings of tokens (section 3.4)."""
    width = c.d_embedding or c.d_model
    parts = {
        "dropout": c.dropout,
        "norm": _norm(c, width) if c.embedding_norm else None,
        "project": nn.Linear(width, c.d_model) if width != c.d_model else None,
        "numbering": PositionsWithoutPadding(c.count_from) if c.count_from >= 0 else sequential_positions,
    }
    tokens, positions = nn.Embedding(vocab_size, width), _positions(c, width)
    if c.n_types:
        return TypedEmbeddings(nn.Embedding(c.n_types, width), tokens, positions, c.embedding_scale, **parts)
    return Embeddings(tokens, positions, c.embedding_scale, **parts)


def series_front(c: StackConfig, n_columns: int) -> SeriesEmbeddings:
    """The embeddings of a time series."""
    return SeriesEmbeddings(n_columns, c.d_model, _positions(c, c.d_model), c.dropout)


def _positions(c: StackConfig, width: int) -> nn.Module:
    with torch.device("cpu") if c.positions.startswith("sinusoidal") else nullcontext():
        return POSITIONS[c.positions](c, width)


# --- Heads ---


def _language_head(c: NetworkConfig, last: StackConfig) -> LanguageHead:
    output = nn.Linear(last.d_model, c.tgt_vocab_size or c.vocab_size, c.head_bias)
    if c.logit_cap:
        return CappedLanguageHead(output, c.logit_cap)
    return LanguageHead(output) if c.logit_scale == 1.0 else ScaledLanguageHead(output, c.logit_scale)


def _masked_head(c: NetworkConfig, last: StackConfig) -> MaskedLanguageHead:
    width = last.d_embedding or last.d_model
    dense, output = nn.Linear(last.d_model, width, c.head_dense_bias), nn.Linear(width, c.vocab_size)
    return MaskedLanguageHead(dense, ACTIVATIONS[c.head_activation], _norm(last, width), output)


def _replaced_token_head(c: NetworkConfig, last: StackConfig) -> ReplacedTokenHead:
    dense = nn.Linear(last.d_model, last.d_model)
    return ReplacedTokenHead(dense, ACTIVATIONS[c.head_activation], nn.Linear(last.d_model, 1))


def _text_class_head(c: NetworkConfig, last: StackConfig) -> TextClassHead:
    pool, classes = nn.Linear(last.d_model, last.d_model, c.head_dense_bias), nn.Linear(last.d_model, c.n_classes)
    norm = _norm(last, last.d_model) if c.head_norm else None
    return TextClassHead(pool, ACTIVATIONS[c.head_activation], classes, norm, POOLINGS[c.pooling])


def _token_class_head(c: NetworkConfig, last: StackConfig, n_classes: int) -> TokenClassHead:
    classes = nn.Linear(last.d_model, n_classes)
    if not c.head_norm:
        return TokenClassHead(classes)
    dense = nn.Linear(last.d_model, last.d_model, c.head_dense_bias)
    return NormedTokenClassHead(dense, ACTIVATIONS[c.head_activation], _norm(last, last.d_model), classes)


HEADS: dict[str, Callable[[NetworkConfig, StackConfig], nn.Module]] = {
    "none": lambda c, last: nn.Identity(),
    "language": _language_head,
    "masked": _masked_head,
    "replaced": _replaced_token_head,
    "text_class": _text_class_head,
    "token_class": lambda c, last: _token_class_head(c, last, c.n_classes),
    "span": lambda c, last: _token_class_head(c, last, 2),  # start and end of an answer
    "image_class": lambda c, last: FirstStateHead(
        [nn.Linear(last.d_model, c.n_classes) for _ in range(c.n_class_states)]
    ),
}

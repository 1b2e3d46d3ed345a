"""Packs an encoder-decoder or a decoder alone for the compiled library (`headwise.runtime.native`), which runs the
search.

This works for any network (a recipe, Marian, BART, GPT-2, LLaMA, ...) whose modules the library supports. Whether to
use the library is decided in `inference.prepare_for_inference`.
"""

import math
import re
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from headwise.core.attention import DotProduct, MultiHeadAttention, Windowed
from headwise.core.embeddings import Embeddings
from headwise.core.layers import ACTIVATIONS
from headwise.core.positions import LearnedPositions, NoPositions, PositionsWithoutPadding, sequential_positions
from headwise.pytorch.search.changes import hooked
from headwise.runtime.native.library import library
from headwise.runtime.native.network import ACTIVATIONS as COMPILED_ACTIVATIONS
from headwise.runtime.native.network import CompiledNetwork, Shape
from headwise.runtime.native.speech import CompiledSpeech

NORMS = {"LayerNorm": "layer", "RMSNorm": "rms", "ShiftedRMSNorm": "rms_shifted"}
# Classes of `headwise.core` and `torch.nn` that the library supports. They are known by name, so that unused modules
# are not imported. Subclasses are not supported: they may compute something else.
SUPPORTED = {
    "Transformer", "Encoder", "Decoder", "EncoderLayer", "DecoderLayer", "Sublayer", "Everywhere", "Causal",
    "DecoderOnly", "CausalStack",
    "MultiHeadAttention", "NoRotation", "Rotary", "FeedForward", "GatedFeedForward", "LanguageHead",
    "ScaledLanguageHead", "Embeddings", "SinusoidalPositions", "LearnedPositions", "NoPositions", "Dropout",
    "Embedding", "Linear", "Identity", "ModuleList", "AudioFront", "Conv1d", *NORMS,
}  # fmt: skip
PARAMETERS = re.compile(  # parameters that are packed; others would be silently ignored
    r"src_embeddings\.(conv[12]\.(weight|bias)|positions)"
    r"|((src|tgt)_)?embeddings\.(tokens\.weight|norm\.(weight|bias)|positions\.table\.weight)"
    r"|decoder\.layers\.\d+\.self_attn\.[qk]_norm\.weight"
    r"|(encoder|decoder)\.layers\.\d+\.((self|cross)_attn\.[qkvo]_proj|ffn\.(gate|up|down)_proj)\.(weight|bias)"
    r"|(encoder|decoder)\.layers\.\d+\.(self_attn|cross_attn|ffn)_sublayer\.norm\.(weight|bias)"
    r"|(encoder|decoder)\.norm\.(weight|bias)|head\.output\.(weight|bias)"
)


class Unsupported(ValueError):
    """The library does not support a module of the network; the message names it."""


def pack_network(model: Any, compute: str) -> CompiledNetwork:
    """A packed copy of the parameters in one of `runtime.native.linear.NUMBERS`; raises `Unsupported` like `shape_of`.

    Parameters that were loaded in bfloat16 stay in bfloat16 for `compute` = "float32".
    """
    shape, sides = shape_of(model), _sides(model)
    if compute == "float32" and sides[0].tokens.weight.dtype == torch.bfloat16:
        compute = "bfloat16"

    def positions(length: int) -> tuple[Any, ...]:
        if len(sides) == 1 and isinstance(sides[0].positions, NoPositions):
            return (None,)
        return tuple(_codes(side, length) for side in sides)

    kind = CompiledSpeech if _reads_sound(model) else CompiledNetwork
    return kind(_parameters(model), shape, positions, compute)


def _sides(model: Any) -> list[Embeddings]:
    """The embeddings of source and target, or of a decoder that reads no tokens as sources."""
    if _class_name(model) == "DecoderOnly":
        return [model.embeddings]
    return [model.tgt_embeddings] if _reads_sound(model) else [model.src_embeddings, model.tgt_embeddings]


def _reads_sound(model: Any) -> bool:
    return _class_name(getattr(model, "src_embeddings", None)) == "AudioFront"


def native_available(model: nn.Module) -> bool:
    """Whether the library is loaded and supports this network."""
    return library() is not None and not unsupported_module(model)


def unsupported_module(model: nn.Module) -> str:
    """The first module or setting that the library does not support; "" if there is none."""
    try:
        shape_of(model)
    except Unsupported as error:
        return str(error)
    return ""


def _class_name(part: Any) -> str:
    """The name of a class of `headwise.core` or `torch.nn`; "" for any other class."""
    return type(part).__name__ if type(part).__module__.startswith(("headwise.core.", "torch.nn.")) else ""


def shape_of(model: Any) -> Shape:
    """The network's hyperparameters; raises `Unsupported` for a network that the library cannot run."""
    if found := hooked(model):
        raise Unsupported(found)
    for name, module in model.named_modules():
        if _class_name(module) not in SUPPORTED:
            raise Unsupported(f"{name or 'the network'} is a {type(module).__name__}")
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if not PARAMETERS.fullmatch(name) or parameter.dtype not in (torch.float32, torch.bfloat16):
            raise Unsupported(f"{name} of {parameter.dtype}")
    modules, sides = list(model.modules()), _sides(model)
    attentions = [module for module in modules if _class_name(module) == "MultiHeadAttention"]
    networks = [module for module in modules if _class_name(module) in ("FeedForward", "GatedFeedForward")]
    norms = [module for module in modules if _class_name(module) in NORMS]
    encoder, decoder = model.encoder.layers if _class_name(model) == "Transformer" else (), model.decoder.layers
    _one({side.tokens.embedding_dim for side in sides}, "widths")
    windows = tuple(_window(layer.self_attn) for layer in (*encoder, *decoder))
    if any(windows) and encoder:
        raise Unsupported("attention with a window and an encoder")
    return Shape(
        tuple(layer.self_attn.n_heads for layer in encoder),
        tuple(layer.self_attn.n_heads for layer in decoder),
        tuple(layer.cross_attn.n_heads for layer in decoder if encoder),
        norm_first=_one({bool(module.norm_first) for module in modules if _class_name(module) == "Sublayer"}, "orders"),
        eps=_one({float(norm.eps) for norm in norms}, "eps of norms"),
        norm=_one({NORMS[_class_name(norm)] for norm in norms}, "kinds of norms"),
        activation=_one({_activation(network) for network in networks}, "activations"),
        embedding_scales=(float(sides[0].scale), float(sides[-1].scale)),
        score_scale=_one({_score_scale(attention) for attention in attentions}, "factors on scores"),
        logit_scale=float(getattr(model.head, "scale", 1.0)),
        padding=_one({_padding(side) for side in sides}, "ids of padding"),
        rotary=_one({_rotary(layer.self_attn) for layer in (*encoder, *decoder)}, "rotary positions"),
        windows=windows if any(windows) else (),
    )


def _one(values: Iterable[Any], what: str) -> Any:
    """The single value of all modules."""
    only, *others = values
    if others:
        raise Unsupported(f"several {what}")
    return only


def _activation(network: Any) -> str:
    for name, function in ACTIVATIONS.items():
        if function is network.activation and name in COMPILED_ACTIVATIONS:
            return name
    raise Unsupported(f"the activation {getattr(network.activation, '__name__', network.activation)}")


def _score_scale(attention: MultiHeadAttention) -> float:
    """0 for d_k^-1/2."""
    kernel: Any = attention.kernel.kernel if type(attention.kernel) is Windowed else attention.kernel
    if type(kernel) is not DotProduct:
        raise Unsupported("attention with a cap")
    scale, d_k = kernel.scale, attention.q_proj.out_features // attention.n_heads
    return 0.0 if math.isclose(scale * scale * d_k, 1.0) else scale


def _window(attention: MultiHeadAttention) -> int:
    """The width of a sliding window; 0 for none."""
    return attention.kernel.width if type(attention.kernel) is Windowed else 0


def _rotary(attention: MultiHeadAttention) -> tuple[float, ...]:
    """The rotation rate of each pair of a head's components, radians a position; () without rotary positions."""
    return tuple(getattr(attention.rotate, "rates", torch.empty(0)).tolist())


def _padding(embeddings: Embeddings) -> int:
    """The id of padding that does not count as a position; -1 if it counts."""
    if embeddings.numbering is sequential_positions:
        return -1
    if (
        not isinstance(embeddings.numbering, PositionsWithoutPadding)
        or _class_name(embeddings.positions) != "SinusoidalPositions"
    ):
        raise Unsupported("learned positions that are counted without padding")
    return embeddings.numbering.pad_id


def _codes(embeddings: Embeddings, length: int) -> Any:
    """The encodings of at least `length` positions; all of a learned table. That of uncounted padding comes first."""
    positions: Any = embeddings.positions
    if isinstance(positions, NoPositions):
        return torch.zeros(length, embeddings.tokens.embedding_dim).numpy()
    if isinstance(positions, LearnedPositions):
        return positions.table.weight.detach()[positions.offset :].float().numpy()
    codes = positions.codes(length + positions.offset, positions.d_model)[positions.offset :]
    return (codes if _padding(embeddings) < 0 else torch.cat([torch.zeros_like(codes[:1]), codes])).numpy()


def _parameters(model: nn.Module) -> dict[str, Any]:
    """float32 arrays by the names in a model directory."""
    names = {name: re.sub("^embeddings", "tgt_embeddings", name.removeprefix("head.")) for name in model.state_dict()}
    return {names[name]: value.detach().float().numpy() for name, value in model.state_dict().items()}

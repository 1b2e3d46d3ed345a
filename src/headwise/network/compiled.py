"""A trained encoder-decoder handed to the compiled library (`headwise.native`), which then searches by itself.

Wherever the network comes from (a recipe, Marian, M2M-100, BART, ...), if the library has its every part. Not here:
what the library does, and whether to use it (`prepared.prepare_for_inference`).
"""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from headwise.native.library import library
from headwise.native.network import ACTIVATIONS as COMPILED_ACTIVATIONS
from headwise.native.network import CompiledEnsemble, CompiledNetwork, Shape
from headwise.network.attention import DotProduct, MultiHeadAttention
from headwise.network.embeddings import Embeddings
from headwise.network.feed_forward import ACTIVATIONS
from headwise.network.interventions import hooked
from headwise.network.positions import LearnedPositions, NoPositions, WithoutPadding, numbered_in_order

NORMS = {"LayerNorm": "layer", "RMSNorm": "rms", "ShiftedRMSNorm": "rms_shifted"}
# What a network may be made of, of `headwise.network` and `torch.nn`: known by name, so that nobody has to import what
# he does not use, and these exactly, for what is derived from them may do something else.
PARTS = {
    "Transformer", "Encoder", "Decoder", "EncoderLayer", "DecoderLayer", "Sublayer", "Everywhere", "Causal",
    "MultiHeadAttention", "AsItIs", "Rotary", "FeedForward", "GatedFeedForward", "LanguageHead", "ScaledLanguageHead",
    "Embeddings", "SinusoidalPositions", "LearnedPositions", "NoPositions", "Dropout", "Embedding", "Linear",
    "Identity", "ModuleList", *NORMS,
}  # fmt: skip
PARAMETERS = re.compile(  # which of their parameters are packed; others would be left out in silence
    r"(src|tgt)_embeddings\.(tokens\.weight|norm\.(weight|bias)|positions\.table\.weight)"
    r"|(encoder|decoder)\.layers\.\d+\.((self|cross)_attn\.[qkvo]_proj|ffn\.(gate|up|down)_proj)\.(weight|bias)"
    r"|(encoder|decoder)\.layers\.\d+\.(self_attn|cross_attn|ffn)_sublayer\.norm\.(weight|bias)"
    r"|(encoder|decoder)\.norm\.(weight|bias)|head\.output\.(weight|bias)"
)


class Foreign(ValueError):
    """A network has a part that the library lacks; says which."""


def packed(model: Any, compute: str) -> CompiledNetwork:
    """The network's parameters as they are now, packed in one of `native.network.NUMBERS`; `Foreign` as `shape_of`.

    What was loaded in bfloat16 stays so where float32 is asked for.
    """
    src, tgt = model.src_embeddings, model.tgt_embeddings
    if compute == "float32" and src.tokens.weight.dtype == torch.bfloat16:
        compute = "bfloat16"
    shape = shape_of(model)
    return CompiledNetwork(_parameters(model), shape, lambda n: (_codes(src, n), _codes(tgt, n)), compute)


def together(forms: Sequence[Any]) -> CompiledEnsemble | None:
    """Packed networks that search as one; None where not all of `forms` are packed."""
    return CompiledEnsemble(tuple(forms)) if all(isinstance(form, CompiledNetwork) for form in forms) else None


def native_available(model: nn.Module) -> bool:
    """Whether the library is there and takes a network like this one."""
    return library() is not None and not foreign(model)


def foreign(model: nn.Module) -> str:
    """What of a network the library lacks; nothing if it has everything."""
    try:
        shape_of(model)
    except Foreign as error:
        return str(error)
    return ""


def kind_of(part: Any) -> str:
    """The name of its class, where that is one of `headwise.network` or torch's; otherwise nothing."""
    return type(part).__name__ if type(part).__module__.startswith(("headwise.network.", "torch.nn.")) else ""


def shape_of(model: Any) -> Shape:
    """What the network's parameters do not say; `Foreign` for one that is not for the library."""
    if found := hooked(model):
        raise Foreign(found)
    for name, module in model.named_modules():
        if kind_of(module) not in PARTS:
            raise Foreign(f"{name or 'the network'} is a {type(module).__name__}")
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if not PARAMETERS.fullmatch(name) or parameter.dtype not in (torch.float32, torch.bfloat16):
            raise Foreign(f"{name} of {parameter.dtype}")
    modules = list(model.modules())
    attentions = [module for module in modules if kind_of(module) == "MultiHeadAttention"]
    networks = [module for module in modules if kind_of(module) in ("FeedForward", "GatedFeedForward")]
    norms = [module for module in modules if kind_of(module) in NORMS]
    layers = [*model.encoder.layers, *model.decoder.layers]
    sides = (model.src_embeddings, model.tgt_embeddings)
    _one({side.tokens.embedding_dim for side in sides}, "widths")
    return Shape(
        tuple(layer.self_attn.n_heads for layer in model.encoder.layers),
        tuple(layer.self_attn.n_heads for layer in model.decoder.layers),
        tuple(layer.cross_attn.n_heads for layer in model.decoder.layers),
        norm_first=_one({bool(module.norm_first) for module in modules if kind_of(module) == "Sublayer"}, "orders"),
        eps=_one({float(norm.eps) for norm in norms}, "eps of norms"),
        norm=_one({NORMS[kind_of(norm)] for norm in norms}, "kinds of norms"),
        activation=_one({_activation(network) for network in networks}, "activations"),
        embedding_scales=(float(sides[0].scale), float(sides[1].scale)),
        score_scale=_one({_score_scale(attention) for attention in attentions}, "factors on scores"),
        logit_scale=float(getattr(model.head, "scale", 1.0)),
        padding=_one({_padding(side) for side in sides}, "ids of padding"),
        rotary=_one({_rotary(layer.self_attn) for layer in layers}, "rotary positions"),
    )


def _one(found: Iterable[Any], what: str) -> Any:
    """The only one there is."""
    only, *others = found
    if others:
        raise Foreign(f"several {what}")
    return only


def _activation(network: Any) -> str:
    for name, function in ACTIVATIONS.items():
        if function is network.activation and name in COMPILED_ACTIVATIONS:
            return name
    raise Foreign(f"the activation {getattr(network.activation, '__name__', network.activation)}")


def _score_scale(attention: MultiHeadAttention) -> float:
    """0 for the paper's."""
    if type(attention.kernel) is not DotProduct:
        raise Foreign("attention with a window or a cap")
    scale, d_k = attention.kernel.scale, attention.q_proj.out_features // attention.n_heads
    return 0.0 if math.isclose(scale * scale * d_k, 1.0) else scale


def _rotary(attention: MultiHeadAttention) -> tuple[float, ...]:
    """By how much a position turns each pair of a head, radians; nothing where none is turned."""
    return tuple(getattr(attention.rotate, "rates", torch.empty(0)).tolist())


def _padding(embeddings: Embeddings) -> int:
    """What does not count as a position; -1 where everything does."""
    if embeddings.numbering is numbered_in_order:
        return -1
    if not isinstance(embeddings.numbering, WithoutPadding) or kind_of(embeddings.positions) != "SinusoidalPositions":
        raise Foreign("learned positions that are counted without padding")
    return embeddings.numbering.pad_id


def _codes(embeddings: Embeddings, length: int) -> Any:
    """The codes of `length` positions or more, if there are more; all where they were learned."""
    positions: Any = embeddings.positions
    if isinstance(positions, NoPositions):
        return torch.zeros(length, embeddings.tokens.embedding_dim).numpy()
    if isinstance(positions, LearnedPositions):
        return positions.table.weight.detach()[positions.offset :].float().numpy()
    return positions.codes(length + positions.offset, positions.d_model)[positions.offset :].numpy()


def _parameters(model: nn.Module) -> dict[str, Any]:
    """By the names of our own model directories."""
    return {name.removeprefix("head."): value.detach().float().numpy() for name, value in model.state_dict().items()}

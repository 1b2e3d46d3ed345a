"""The axes along which the Transformer's families differ, and nothing else: what `build_family` builds networks from.

A field exists because some family needs it; behind each stands who forced it. What all of them share is the paper.
How a family's own configuration maps to these is in `sightline.families`.
"""

import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from types import UnionType
from typing import Any, get_args, get_origin

from sightline.errors import UserError, unknown


@dataclass(frozen=True)
class RotaryConfig:
    """Rotary positions (`position_variants.Rotary`)."""

    width: int  # components of a head that are turned, even; fewer than all: GPT-NeoX
    base: float = 10000.0  # of the rates
    scaling: str = "none"  # "linear" (LLaMA 2 long), "llama3" (LLaMA 3.1) or "none"
    factor: float = 1.0  # by which positions are stretched
    low: float = 1.0  # llama3: turns in `trained_len` positions below which a pair is slowed
    high: float = 4.0  # llama3: turns above which it is left alone
    trained_len: int = 8192  # llama3: positions the model was trained on first


@dataclass(frozen=True)
class StackConfig:
    """One stack of layers and the embeddings before it. Symbols as in `config.ModelConfig`."""

    d_model: int
    n_layers: int
    n_heads: int
    d_ff: int
    d_head: int  # width of a head; not always d_model / n_heads (T5, Gemma, Qwen3)
    n_kv_heads: int = 0  # heads of keys and values; 0 = n_heads (LLaMA 2)
    attention_bias: str = "qkvo"  # projections with a bias: "" (T5, LLaMA), "qkv" (Qwen2), "qvo" (Whisper)
    score_scale: float = 0.0  # factor on the scores; 0 = d_head^-1/2; 1 (T5)
    score_cap: float = 0.0  # scores stay below; 0 = no cap (Gemma 2)
    normalise_heads: bool = False  # every head's queries and keys go through a norm (Qwen3)
    windows: tuple[int, ...] = ()  # positions a layer sees back, for each layer, 0 = all; () = all (Mistral)
    activation: str = "gelu"  # see `feed_forward.ACTIVATIONS`
    gated: bool = False  # gated feed-forward network (T5 v1.1, LLaMA)
    ffn_bias: bool = True  # (T5, LLaMA: none)
    norm: str = "layer"  # "layer_unbiased" (PaLM), "rms" (T5, LLaMA) or "rms_shifted" (Gemma)
    norm_eps: float = 1e-5
    norm_position: str = "pre"  # or "post" (BERT, BART), "sandwich" (Gemma 2)
    parallel: str = "no"  # sub-layers side by side: "two_norms" (GPT-NeoX) or "one_norm" (PaLM)
    positions: str = "none"  # "learned", "sinusoidal" (Marian), "sinusoidal_tensor2tensor" (M2M-100) or "none"
    max_len: int = 0  # rows of learned positions that are for places
    position_offset: int = 0  # row of the first place (BART: 2)
    count_from: int = -1  # places are counted without padding, which has this id; -1 = with it (RoBERTa, M2M-100)
    rotary: RotaryConfig | None = None  # (GPT-NeoX, LLaMA)
    relative_buckets: int = 0  # of relative positions; 0 = none (T5)
    relative_distance: int = 128  # beyond which all distances are one
    embedding_scale: float = 1.0  # sqrt(d_model) in the paper (Marian, Gemma)
    embedding_norm: bool = False  # (BERT, BART)
    d_embedding: int = 0  # width of the embeddings where a projection follows; 0 = d_model (ELECTRA)
    n_types: int = 0  # segments; 0 = no such table (BERT)


@dataclass(frozen=True)
class FamilyConfig:
    """A family's network. An encoder alone, a decoder alone, or both."""

    family: str  # the name of its table in `sightline.families`
    vocab_size: int = 0
    encoder: StackConfig | None = None
    decoder: StackConfig | None = None
    front: str = "tokens"  # before the first stack: "tokens", "patches" (ViT) or "audio" (Whisper)
    image_size: tuple[int, int] = (0, 0)  # height and width, pixels
    patch_size: int = 0  # pixels a side
    n_channels: int = 0
    n_prefix: int = 0  # vectors before the patches: 1 (ViT) or 2 (DeiT)
    n_mels: int = 0
    head: str = "language"  # "masked", "replaced", "text_class", "token_class", "span", "image_class", "none"
    head_activation: str = "gelu"
    head_bias: bool = False
    n_classes: int = 0
    n_class_states: int = 1  # first states that are classified: 2 (DeiT with its teacher)
    share_embeddings: bool = True  # encoder and decoder have one table (not Marian's with two vocabularies)
    tgt_vocab_size: int = 0  # where the decoder's differs; 0 = vocab_size
    tie_head: bool = True  # the head's matrix is the table of embeddings
    logit_scale: float = 1.0  # factor on the hidden states before the head (T5: d_model^-1/2)
    logit_cap: float = 0.0  # logits stay below; 0 = no cap (Gemma 2)

    def as_dict(self) -> dict[str, Any]:
        """Nested plain dictionary, ready for JSON."""
        return asdict(self)


def meaningful(config: FamilyConfig) -> dict[str, Any]:
    """`config.as_dict()` without what the network does not have: what is off, zero or empty unless a family sets it."""
    return _had(FamilyConfig, config.as_dict())


def _had(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    absent = (None, False, 0, -1, "", (), (0, 0))  # where they are the default
    default = {f.name: f.default for f in fields(kind)}
    kept = {name: value for name, value in values.items() if value != default[name] or value not in absent}
    nested = {"encoder": StackConfig, "decoder": StackConfig, "rotary": RotaryConfig}
    return {name: _had(nested[name], value) if name in nested else value for name, value in kept.items()}


def family_config(values: Mapping[str, Any], origin: str) -> FamilyConfig:
    """The configuration of a dictionary `as_dict` made and JSON carried; `origin` is named in errors."""
    values = _checked(FamilyConfig, values, origin)
    for side in ("encoder", "decoder"):
        if values.get(side) is not None:
            values[side] = _stack_config(values[side], f"{origin}: {side}")
    values["image_size"] = tuple(values.get("image_size", (0, 0)))
    return _made(FamilyConfig, values, origin)


def _stack_config(values: Mapping[str, Any], origin: str) -> StackConfig:
    values = _checked(StackConfig, values, origin)
    if values.get("rotary") is not None:
        rotary = f"{origin}.rotary"
        values["rotary"] = _made(RotaryConfig, _checked(RotaryConfig, values["rotary"], rotary), rotary)
    return _made(StackConfig, {**values, "windows": tuple(values.get("windows", ()))}, origin)


def _checked(kind: type, values: Any, origin: str) -> dict[str, Any]:
    """`values` when they name fields of `kind` only, each with what it may hold."""
    if not isinstance(values, Mapping):
        raise UserError(f"{origin}: must be a table")
    types = {f.name: f.type for f in fields(kind)}
    for name, value in values.items():
        if name not in types:
            raise UserError(f"{origin}: {unknown('key', name, types)}")
        if not _fits(value, types[name]):
            wanted = getattr(types[name], "__name__", str(types[name]))
            raise UserError(f"{origin}: {name} = {str(value)[:60]!r}: must be of type {wanted}")
        if types[name] is int and value < 0 and name != "count_from":
            raise UserError(f"{origin}: {name} = {value}: must not be negative")
    return {name: float(value) if types[name] is float else value for name, value in values.items()}


def _fits(value: Any, kind: Any) -> bool:
    """Whether JSON gave what a field of that type holds; a table within is checked on its own."""
    if kind is float:
        return type(value) in (int, float) and -math.inf < value < math.inf
    if get_origin(kind) is tuple:
        of_any_length = Ellipsis in get_args(kind)
        right = isinstance(value, list | tuple) and (of_any_length or len(value) == len(get_args(kind)))
        return right and all(type(one) is int for one in value)
    if isinstance(kind, UnionType):
        return value is None or isinstance(value, Mapping)
    return type(value) is kind


def _made(kind: Any, values: Mapping[str, Any], origin: str) -> Any:
    """A `kind` of these values; `UserError` where one without a default is missing."""
    for f in fields(kind):
        if f.name not in values and f.default is MISSING:
            raise UserError(f"{origin}: has no '{f.name}'")
    return kind(**values)

"""The configuration of a network: every way in which the supported Transformers differ. `build` builds from it.

The comment of a field names the family that needs it; anything all families share is not configurable.
`headwise.families` converts a `config.json`, and `headwise.pytorch.architectures` a recipe's [model], to these classes.
"""

import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from types import UnionType
from typing import Any, get_args, get_origin

from headwise.errors import UserError, unknown


@dataclass(frozen=True)
class RotaryConfig:
    """Rotary positions (`rotary.Rotary`)."""

    width: int  # components of a head that are rotated, even; fewer than all: GPT-NeoX
    base: float = 10000.0  # base of the rates
    scaling: str = "none"  # "linear" (LLaMA 2 long), "llama3" (LLaMA 3.1) or "none"
    factor: float = 1.0  # positions are divided by it
    low: float = 1.0  # llama3: turns in `trained_len` positions below which a pair is scaled
    high: float = 4.0  # llama3: turns above which it is not scaled
    trained_len: int = 8192  # llama3: context length before scaling


@dataclass(frozen=True)
class StackConfig:
    """One stack of layers and the embeddings before it. Symbols as in `config.ModelConfig`."""

    d_model: int
    n_layers: int
    n_heads: int
    d_ff: int
    d_head: int  # width of a head; not always d_model / n_heads (T5, Gemma, Qwen3)
    d_v: int = 0  # width of its values; 0 = d_head (the paper's Table 3)
    n_kv_heads: int = 0  # heads of keys and values; 0 = n_heads (LLaMA 2)
    heads: tuple[int, ...] = ()  # heads left in each layer by pruning; () = n_heads in all
    cross_heads: tuple[int, ...] = ()  # the same for cross-attention
    dropout: float = 0.0  # in training, on every sub-layer output and on embeddings
    attention_bias: str = "qkvo"  # projections with a bias: "" (T5, LLaMA), "qkv" (Qwen2), "qvo" (Whisper)
    score_scale: float = 0.0  # factor on the scores; 0 = d_head^-1/2; 1 (T5)
    score_cap: float = 0.0  # scores stay below; 0 = no cap (Gemma 2)
    normalise_heads: bool = False  # a norm on every head's queries and keys (Qwen3)
    windows: tuple[int, ...] = ()  # sliding window of each layer: distances below it; 0 = all; () = all (Mistral)
    activation: str = "gelu"  # see `feed_forward.ACTIVATIONS`
    gated: bool = False  # gated feed-forward network (T5 v1.1, LLaMA)
    ffn_bias: bool = True  # (T5, LLaMA: none)
    norm: str = "layer"  # "layer_unbiased" (PaLM), "rms" (T5, LLaMA) or "rms_shifted" (Gemma)
    norm_eps: float = 1e-5
    norm_position: str = "pre"  # or "post" (BERT, BART), "sandwich" (Gemma 2)
    parallel: str = "no"  # parallel sub-layers: "two_norms" (GPT-NeoX) or "one_norm" (PaLM)
    # "sinusoidal_interleaved" (the paper), "sinusoidal" in halves (Marian), "sinusoidal_tensor2tensor" (M2M-100),
    # "learned" or "none".
    positions: str = "none"
    max_len: int = 0  # number of positions: of learned ones, or of a table (Marian, M2M-100); 0 = no limit
    position_offset: int = 0  # row of the first token (BART: 2)
    count_from: int = -1  # id of padding that does not count as a position; -1 = it counts (RoBERTa, M2M-100)
    rotary: RotaryConfig | None = None  # (GPT-NeoX, LLaMA)
    relative_buckets: int = 0  # buckets of relative positions; 0 = none (T5, MPNet)
    relative_distance: int = 128  # largest distance with its own bucket
    embedding_scale: float = 1.0  # sqrt(d_model) in the paper (Marian, Gemma)
    embedding_norm: bool = False  # (BERT, BART)
    d_embedding: int = 0  # width of the embeddings if they are projected; 0 = d_model (ELECTRA, ALBERT)
    n_types: int = 0  # token types (segments); 0 = none (BERT)
    layer_groups: int = 0  # groups of layers with the same parameters; 0 = every layer has its own (ALBERT)
    window_rotary: RotaryConfig | None = None  # rotary positions of layers with a window; None = as others (ModernBERT)
    first_norm: bool = True  # whether the first attention of an encoder has a norm (not in ModernBERT)
    # Scores of contents and relative positions, "c2p", "p2c" or "c2p|p2c", from a table for both directions with
    # `relative_buckets` vectors each (DeBERTa).
    disentangled: str = ""
    relative_norm: bool = False  # a norm on the vectors of relative positions (DeBERTa)
    d_memory: int = 0  # width of the encoder's states in cross-attention; 0 = they are projected to d_model (T5Gemma)

    @property
    def longest(self) -> int | None:
        """The number of learned positions; None without a limit."""
        return self.max_len if self.positions == "learned" else None

    @property
    def first_of_groups(self) -> list[int]:
        """The first layer of each layer's group, whose parameters it has.

        >>> StackConfig(d_model=8, n_layers=6, n_heads=2, d_ff=8, d_head=4, layer_groups=2).first_of_groups
        [0, 0, 0, 3, 3, 3]
        """
        size = self.n_layers // (self.layer_groups or self.n_layers)
        assert self.n_layers % size == 0, "all groups have as many layers"
        return [i - i % size for i in range(self.n_layers)]


@dataclass(frozen=True)
class NetworkConfig:
    """A network: an encoder alone, a decoder alone, or both."""

    family: str  # the name of its module in `headwise.families`
    vocab_size: int = 0
    encoder: StackConfig | None = None
    decoder: StackConfig | None = None
    front: str = "tokens"  # before the first stack: "tokens", "patches" (ViT) or "audio" (Whisper)
    image_size: tuple[int, int] = (0, 0)  # height and width, pixels
    patch_size: int = 0  # pixels a side
    n_channels: int = 0
    n_prefix: int = 0  # trained vectors before the patches: 1 (ViT) or 2 (DeiT)
    n_mels: int = 0
    head: str = "language"  # "masked", "replaced", "text_class", "token_class", "span", "image_class", "none"
    head_activation: str = "gelu"
    head_bias: bool = False
    n_classes: int = 0
    n_class_states: int = 1  # states that are classified: 2 (DeiT with its teacher)
    share_embeddings: bool = True  # one table for encoder and decoder (not in Marian with two vocabularies)
    tgt_vocab_size: int = 0  # of the decoder; 0 = vocab_size
    tie_head: bool = True  # the head's matrix is the table of embeddings
    logit_scale: float = 1.0  # factor on the hidden states before the head (T5: d_model^-1/2)
    logit_cap: float = 0.0  # logits stay below; 0 = no cap (Gemma 2)
    pooling: str = "first"  # state that a head "text_class" classifies, or "mean" of all (ModernBERT)
    head_norm: bool = False  # a layer with activation and norm before the classes of every head (ModernBERT)
    head_dense_bias: bool = True  # of the layer with activation (not in ModernBERT)

    def as_dict(self) -> dict[str, Any]:
        """Nested plain dictionary, ready for JSON."""
        return asdict(self)


LISTS = ("windows", "heads", "cross_heads")  # fields of a stack that JSON has as lists
ROTARIES = ("rotary", "window_rotary")


def compact_config(config: NetworkConfig) -> dict[str, Any]:
    """`config.as_dict()` without defaults that mean "off", such as zero or empty values."""
    return _compact(NetworkConfig, config.as_dict())


def _compact(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    absent = (None, False, 0, -1, "", (), (0, 0))
    default = {f.name: f.default for f in fields(kind)}
    kept = {name: value for name, value in values.items() if value != default[name] or value not in absent}
    nested = {"encoder": StackConfig, "decoder": StackConfig, **dict.fromkeys(ROTARIES, RotaryConfig)}
    return {name: _compact(nested[name], value) if name in nested else value for name, value in kept.items()}


def network_config(values: Mapping[str, Any], origin: str) -> NetworkConfig:
    """The configuration from the JSON form of `as_dict`; `origin` is named in errors."""
    values = _checked(NetworkConfig, values, origin)
    for side in ("encoder", "decoder"):
        if values.get(side) is not None:
            values[side] = _stack_config(values[side], f"{origin}: {side}")
    values["image_size"] = tuple(values.get("image_size", (0, 0)))
    return _construct(NetworkConfig, values, origin)


def _stack_config(values: Mapping[str, Any], origin: str) -> StackConfig:
    values = _checked(StackConfig, values, origin)
    for name in ROTARIES:
        if values.get(name) is not None:
            rotary = f"{origin}.{name}"
            values[name] = _construct(RotaryConfig, _checked(RotaryConfig, values[name], rotary), rotary)
    stack = _construct(StackConfig, {**values, **{name: tuple(values.get(name, ())) for name in LISTS}}, origin)
    if not stack.n_layers or stack.n_layers % (stack.layer_groups or 1):
        groups = f" and a multiple of layer_groups = {stack.layer_groups}" if stack.layer_groups else ""
        raise UserError(f"{origin}: n_layers = {stack.n_layers}: must be at least 1{groups}")
    return stack


def _checked(kind: type, values: Any, origin: str) -> dict[str, Any]:
    """`values` with floats converted; `UserError` for unknown keys and wrong types."""
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
    """Whether a JSON value has the type of a field; nested tables are checked separately."""
    if kind is float:
        return type(value) in (int, float) and -math.inf < value < math.inf
    if get_origin(kind) is tuple:
        any_length = Ellipsis in get_args(kind)
        right_length = isinstance(value, list | tuple) and (any_length or len(value) == len(get_args(kind)))
        return right_length and all(type(item) is int for item in value)
    if isinstance(kind, UnionType):
        return value is None or isinstance(value, Mapping)
    return type(value) is kind


def _construct(kind: Any, values: Mapping[str, Any], origin: str) -> Any:
    """A `kind` with these values; `UserError` if a required one is missing."""
    for f in fields(kind):
        if f.name not in values and f.default is MISSING:
            raise UserError(f"{origin}: has no '{f.name}'")
    return kind(**values)

"""From the arrays of a model directory to a Transformer of the compiled library, one by one, without a module of torch.

`network/compiled.py` does the same for a Transformer that torch has already. Not here: reading files
(`trained`), and what the library does (`native`).
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.config.model import ModelConfig, TransformerConfig, heads_of_layers
from headwise.native.library import instructions, library
from headwise.native.network import CompiledNetwork, PackedMemory, Shape
from headwise.native.positions import rates_of_pairs, sinusoid_table
from headwise.network.legacy_names import RenamedMapping, current_names

Weights = Mapping[str, NDArray[Any]]  # by the names of the file, shared ones under the first of their names
SOURCE, TARGET, OUTPUT = "src_embeddings.tokens.weight", "tgt_embeddings.tokens.weight", "head.output.weight"
LEARNED = "embeddings.positions.table.weight"  # of either side
READ = {  # settings of [model] that this module reads, or that mean nothing to what is computed
    "architecture", "task", "vocab_size", "pad_id", "dropout", "d_model", "d_ff", "n_heads", "d_k", "d_v",
    "encoder_heads", "decoder_heads", "cross_heads", "n_encoder_layers", "n_decoder_layers", "norm_position",
    "positions", "max_len", "tied_embeddings",
}  # fmt: skip


def described() -> str:
    """What computes, for a reader."""
    return f"the compiled library ({instructions()})"


def is_for_library(c: ModelConfig) -> bool:
    """Whether the library is there and takes a network of this configuration."""
    return isinstance(c, TransformerConfig) and is_papers(c) and library() is not None


def is_papers(c: TransformerConfig) -> bool:
    """Whether nothing is set but what this module reads; other parts go to the library by way of torch's modules."""
    others = (f for f in fields(c) if f.name not in READ)
    return c.positions in ("sinusoidal", "learned", "rotary") and all(getattr(c, f.name) == f.default for f in others)


def fits(c: ModelConfig, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether these are the shapes of all parameters of that Transformer."""
    assert isinstance(c, TransformerConfig)
    own = parameter_shapes(c)
    return current_names(shapes, own) == own


def compiled(c: ModelConfig, weights: Weights, compute: str, memory: PackedMemory | None = None) -> CompiledNetwork:
    """The network packed to compute with `compute`, one of `native.network.NUMBERS`, in `memory` if it is given."""
    assert isinstance(c, TransformerConfig)
    names = current_names({name: name for name in weights}, parameter_shapes(c))
    names.setdefault(TARGET, names[SOURCE])  # what is shared is in the file once
    names["output.weight"] = names.pop(OUTPUT, names[TARGET])
    parameters = RenamedMapping(weights, names)
    heads = [heads_of_layers(c, part) for part in ("encoder", "decoder", "cross")]

    def positions(length: int) -> tuple[Any, Any]:
        if c.positions == "learned":
            return parameters[f"src_{LEARNED}"], parameters[f"tgt_{LEARNED}"]
        table = np.zeros((length, c.d_model), np.float32) if rates else sinusoid_table(0, length, c.d_model)
        return table, table

    rates = rates_of_pairs(c.d_k or c.d_model // c.n_heads).tolist() if c.positions == "rotary" else []
    shape = Shape(*heads, norm_first=c.norm_position == "pre", rotary=tuple(rates))
    return CompiledNetwork(parameters, shape, positions, compute, memory)


def parameter_shapes(c: TransformerConfig) -> dict[str, tuple[int, ...]]:
    """The shape of every parameter of `network.build.build_model`, by the names of the file."""
    table, d_model = (c.vocab_size, c.d_model), c.d_model
    shapes: dict[str, tuple[int, ...]] = {SOURCE: table}
    if c.tied_embeddings != "all":
        shapes[TARGET] = table
    if c.tied_embeddings == "none":
        shapes[OUTPUT] = table
    if c.positions == "learned":
        shapes |= {f"{side}_{LEARNED}": (c.max_len, d_model) for side in ("src", "tgt")}
    for i, own in enumerate(heads_of_layers(c, "encoder")):
        shapes |= _attention(f"encoder.layers.{i}.self_attn", c, own) | _feed_forward(f"encoder.layers.{i}.ffn", c)
    for i, (own, cross) in enumerate(zip(heads_of_layers(c, "decoder"), heads_of_layers(c, "cross"), strict=True)):
        name = f"decoder.layers.{i}"
        shapes |= _attention(f"{name}.self_attn", c, own) | _attention(f"{name}.cross_attn", c, cross)
        shapes |= _feed_forward(f"{name}.ffn", c)
    if c.norm_position == "pre":
        shapes |= _norm("encoder.norm", d_model) | _norm("decoder.norm", d_model)
    return shapes


def _attention(name: str, c: TransformerConfig, heads: int) -> dict[str, tuple[int, ...]]:
    width = c.d_model // c.n_heads  # a head stays as wide when others go
    d_k, d_v = heads * (c.d_k or width), heads * (c.d_v or width)
    q, k, v = (_linear(f"{name}.{x}_proj", c.d_model, d) for x, d in (("q", d_k), ("k", d_k), ("v", d_v)))
    return q | k | v | _linear(f"{name}.o_proj", d_v, c.d_model) | _norm(f"{name}_sublayer.norm", c.d_model)


def _feed_forward(name: str, c: TransformerConfig) -> dict[str, tuple[int, ...]]:
    up, down = _linear(f"{name}.up_proj", c.d_model, c.d_ff), _linear(f"{name}.down_proj", c.d_ff, c.d_model)
    return up | down | _norm(f"{name}_sublayer.norm", c.d_model)


def _linear(name: str, d_in: int, d_out: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (d_out, d_in), f"{name}.bias": (d_out,)}


def _norm(name: str, d_model: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (d_model,), f"{name}.bias": (d_model,)}

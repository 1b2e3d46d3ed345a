"""An encoder of the compiled library, with its head, from the arrays of a model folder; without a torch module.

For BERT and its relatives. `compiled` does the same for encoder-decoders.
"""

from functools import partial

import numpy as np

from headwise.config.network import NetworkConfig, StackConfig
from headwise.config.positions import distance_buckets
from headwise.runtime.checkpoint.compiled import (
    NORMS,
    ShapesByName,
    Weights,
    layer_shapes,
    linear_shapes,
    norm_shapes,
    positions_of,
    rotation_rates,
    score_scale,
    unsupported_layers,
)
from headwise.runtime.native.arrays import Floats
from headwise.runtime.native.encoder import HEAD_ACTIVATIONS, CompiledEncoder, CompiledHead
from headwise.runtime.native.linear import Linear
from headwise.runtime.native.network import Shape

TOKENS, RELATIVE = "embeddings.tokens.weight", "encoder.reach.buckets.weight"
HEADS = {  # the layer with an activation, if any, and the output layer
    "masked": ("head.dense", "head.output"),
    "replaced": ("head.dense", "head.output"),
    "text_class": ("head.pool", "head.classes"),
    "token_class": ("", "head.classes"),
    "span": ("", "head.classes"),
}


def supports_encoder(c: NetworkConfig) -> bool:
    """Whether the compiled library supports this network, an encoder alone that reads tokens."""
    stack = c.encoder
    return (
        stack is not None
        and c.decoder is None
        and (c.front, c.pooling) in (("tokens", "first"), ("tokens", "mean"))
        and c.head in ("none", *HEADS)
        and c.head_activation in HEAD_ACTIVATIONS
        and (NORMS.get(stack.norm) == "layer" or not _has_norm(c))
        and not unsupported_layers(stack)
        and (stack.count_from < 0 or stack.positions != "learned" or stack.position_offset > 0)
        and not (stack.relative_buckets and stack.heads)
    )


def compiled_encoder(c: NetworkConfig, weights: Weights, compute: str) -> CompiledEncoder:
    """The network packed to compute with `compute`, one of `runtime.native.linear.NUMBERS`."""
    stack = c.encoder
    assert stack
    shape = Shape(
        stack.heads or (stack.n_heads,) * stack.n_layers,
        (),
        (),
        norm_first=stack.norm_position == "pre",
        eps=stack.norm_eps,
        norm=NORMS[stack.norm],
        activation=stack.activation,
        embedding_scales=(stack.embedding_scale, 0.0),
        score_scale=score_scale(stack),
        padding=stack.count_from,
        rotary=rotation_rates(stack),
    )
    return CompiledEncoder(
        weights,
        shape,
        lambda length: [positions_of(stack, "embeddings", weights, length)],
        compute,
        groups=stack.first_of_groups,
        relative=partial(_relative_biases, stack, weights) if stack.relative_buckets else None,
        head=partial(_head, c, weights, compute),
    )


def _relative_biases(c: StackConfig, weights: Weights, length: int) -> Floats:
    """(heads, 2 length - 1), from the distance 1 - length on."""
    buckets = distance_buckets(np.arange(1 - length, length), c.relative_buckets, c.relative_distance)
    return np.ascontiguousarray(weights[RELATIVE][buckets].T)


def _head(c: NetworkConfig, weights: Weights, compute: str) -> CompiledHead:
    """The head; only the projection to the vocabulary is in the precision `compute`, the others are small."""
    assert c.encoder
    dense, output = _parts(c)
    matrix = weights[f"{output}.weight" if f"{output}.weight" in weights else TOKENS]
    return CompiledHead(
        Linear(weights[f"{dense}.weight"], weights.get(f"{dense}.bias")) if dense else None,
        c.head_activation,
        (weights["head.norm.weight"], weights.get("head.norm.bias")) if _has_norm(c) else None,
        c.encoder.norm_eps,
        Linear(matrix, weights.get(f"{output}.bias"), compute if c.head == "masked" else "float32"),
    )


def _parts(c: NetworkConfig) -> tuple[str, str]:
    dense, output = HEADS[c.head]
    return ("head.dense" if c.head_norm and not dense else dense), output


def _has_norm(c: NetworkConfig) -> bool:
    return c.head == "masked" or c.head_norm


def encoder_shapes(c: NetworkConfig) -> ShapesByName:
    """The shape of every parameter that `core.build` makes for an encoder, shared ones once."""
    stack = c.encoder
    assert stack
    width = stack.d_embedding or stack.d_model
    shapes: ShapesByName = {TOKENS: (c.vocab_size, width)}
    if stack.positions == "learned":
        shapes["embeddings.positions.table.weight"] = (stack.max_len + stack.position_offset, width)
    if stack.n_types:
        shapes["embeddings.types.weight"] = (stack.n_types, width)
    if stack.embedding_norm:
        shapes |= norm_shapes("embeddings.norm", stack, width)
    if width != stack.d_model:
        shapes |= linear_shapes("embeddings.project", width, stack.d_model)
    if stack.relative_buckets:
        shapes[RELATIVE] = (stack.relative_buckets, stack.n_heads)
    for i in sorted(set(stack.first_of_groups)):
        shapes |= layer_shapes(f"encoder.layers.{i}", stack, i, False)
    if stack.norm_position == "pre":
        shapes |= norm_shapes("encoder.norm", stack)
    return shapes | _head_shapes(c, stack)


def _head_shapes(c: NetworkConfig, stack: StackConfig) -> ShapesByName:
    if c.head == "none":
        return {}
    dense, output = _parts(c)
    width = (stack.d_embedding or stack.d_model) if c.head == "masked" else stack.d_model
    classes = {"masked": c.vocab_size, "replaced": 1, "span": 2}.get(c.head, c.n_classes)
    shapes = linear_shapes(dense, stack.d_model, width, c.head_dense_bias) if dense else {}
    if _has_norm(c):
        shapes |= norm_shapes("head.norm", stack, width)
    shapes |= linear_shapes(output, width, classes)
    if c.tie_head and c.head == "masked":
        del shapes[f"{output}.weight"]
    return shapes

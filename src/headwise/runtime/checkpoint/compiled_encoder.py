"""An encoder of the compiled library, with its head, from the arrays of a model folder; without a torch module.

For BERT and its relatives. `compiled` does the same for encoder-decoders.
"""

from functools import partial

import numpy as np

from headwise.config.network import NetworkConfig, StackConfig
from headwise.config.positions import distance_buckets
from headwise.runtime.checkpoint.compiled import (
    NORMS,
    Weights,
    positions_of,
    rotation_rates,
    score_scale,
    unsupported_layers,
)
from headwise.runtime.checkpoint.shapes import HEADS, has_head_norm, head_layers
from headwise.runtime.native.arrays import Floats
from headwise.runtime.native.encoder import HEAD_ACTIVATIONS, CompiledEncoder, CompiledHead
from headwise.runtime.native.linear import Linear
from headwise.runtime.native.network import Shape

TOKENS, RELATIVE = "embeddings.tokens.weight", "encoder.reach.buckets.weight"


def supports_encoder(c: NetworkConfig) -> bool:
    """Whether the compiled library supports this network, an encoder alone that reads tokens."""
    stack = c.encoder
    return (
        stack is not None
        and stack.n_layers > 0
        and c.decoder is None
        and (c.front, c.pooling) in (("tokens", "first"), ("tokens", "mean"))
        and c.head in ("none", *HEADS)
        and c.head_activation in HEAD_ACTIVATIONS
        and (NORMS.get(stack.norm) == "layer" or not has_head_norm(c))
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
    dense, output = head_layers(c)
    matrix = weights[f"{output}.weight" if f"{output}.weight" in weights else TOKENS]
    return CompiledHead(
        Linear(weights[f"{dense}.weight"], weights.get(f"{dense}.bias")) if dense else None,
        c.head_activation,
        (weights["head.norm.weight"], weights.get("head.norm.bias")) if has_head_norm(c) else None,
        c.encoder.norm_eps,
        Linear(matrix, weights.get(f"{output}.bias"), compute if c.head == "masked" else "float32"),
    )

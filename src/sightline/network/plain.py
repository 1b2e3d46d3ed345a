"""Whether a network is made of the paper's parts alone: what forms for speed may take for granted.

Lists of what is allowed, never of what is not: a part that nobody here has heard of is no plain one.
"""

from typing import Any

from torch import nn

from sightline.network.attention import AsItIs, DotProduct, MultiHeadAttention
from sightline.network.embeddings import Embeddings
from sightline.network.feed_forward import FeedForward, relu
from sightline.network.heads import LanguageHead
from sightline.network.layers import DecoderLayer, EncoderLayer, Sublayer
from sightline.network.masks import Causal, Everywhere
from sightline.network.positions import LearnedPositions, SinusoidalPositions, in_order
from sightline.network.transformer import Transformer


def is_plain(network: nn.Module) -> bool:
    """Whether the whole network is the paper's, but for its size, for learned positions and for the place of norms."""
    if not isinstance(network, Transformer):
        return False
    layers: list[Any] = [*network.encoder.layers, *network.decoder.layers]
    return (
        _reaches_are_plain(network)
        and all(_layer_is_plain(layer) for layer in layers)
        and all(_front_is_plain(front) for front in (network.src_embeddings, network.tgt_embeddings))
        and type(network.head) is LanguageHead
    )


def _reaches_are_plain(network: Transformer) -> bool:
    """Whether everybody sees what section 3.2.3 says."""
    return (type(network.encoder.reach), type(network.decoder.reach)) == (Everywhere, Causal)


def _layer_is_plain(layer: Any) -> bool:
    sublayers = [module for module in layer.children() if isinstance(module, Sublayer)]
    return (
        type(layer) in (EncoderLayer, DecoderLayer)
        and all(type(sublayer) is Sublayer and isinstance(sublayer.norm, nn.LayerNorm) for sublayer in sublayers)
        and type(layer.ffn) is FeedForward
        and layer.ffn.activation is relu
        and all(attention_is_plain(module) for module in layer.children() if isinstance(module, MultiHeadAttention))
    )


def _front_is_plain(front: nn.Module) -> bool:
    return (
        isinstance(front, Embeddings)
        and type(front) is Embeddings
        and type(front.positions) in (SinusoidalPositions, LearnedPositions)
        and front.numbering is in_order
        and isinstance(front.norm, nn.Identity)
        and isinstance(front.project, nn.Identity)
    )


def attention_is_plain(attention: MultiHeadAttention) -> bool:
    """Whether it is section 3.2's: a head of keys and values for each of queries, nothing done to either, biases."""
    projections = attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj
    return (
        scores_are_plain(attention)
        and isinstance(attention.rotate, AsItIs)
        and isinstance(attention.q_norm, nn.Identity)
        and all(projection.bias is not None for projection in projections)
    )


def scores_are_plain(attention: MultiHeadAttention) -> bool:
    """Whether queries and keys, whatever was done to them, meet as in equation 1, a head of each for the other."""
    kernel, d_k = attention.kernel, attention.q_proj.out_features // attention.n_heads
    paper = type(kernel) is DotProduct and kernel.scale in (0.0, d_k**-0.5)
    return paper and attention.n_kv_heads == attention.n_heads

"""An encoder alone (BERT and its relatives) without padding: `packed.py` for networks that are tuned.

Weights of attention are dropped in training by most of them, which the compiled library does not know; then attention
alone is computed with padding, by the network's own kernel, and every product around it over real positions only.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sightline.network.attention import MultiHeadAttention, merge_heads, split_heads
from sightline.network.halves import EncoderOnly
from sightline.network.masks import Everywhere, over_keys
from sightline.network.more_dropout import DroppingKernel
from sightline.training.packed import Packing, is_known, packs, project, self_attention, starts, untouched, widths_of
from sightline.training.recompute import as_layer


def packed_forward(network: nn.Module) -> Callable[..., Tensor]:
    """What calls the network; padding is not computed where that is possible."""

    def forward(src: Tensor, mask: Tensor, types: Tensor | None = None) -> Tensor:
        if isinstance(network, EncoderOnly):
            return network.logits(states(src, mask, types))
        return network(src, mask, types)

    states = packed_states_of(network)
    return forward


def packed_states_of(network: Any) -> Callable[..., Tensor]:
    """The same for its last hidden states; those of padding mean nothing."""

    def encode(src: Tensor, mask: Tensor, types: Tensor | None = None) -> Tensor:
        if can_pack_encoder(network, mask):
            return packed_hidden(network, src, mask, types)
        return network.encode(src, mask, types)

    return encode


def packed_hidden(
    network: EncoderOnly,
    src: Int[Tensor, "batch length"],
    mask: Bool[Tensor, "batch length"],
    types: Int[Tensor, "batch length"] | None = None,
) -> Float[Tensor, "batch length d_model"]:
    """What `EncoderOnly.encode` gives, zero at padding."""
    embedded = network.embeddings(src) if types is None else network.embeddings(src, types=types)
    x, packing = embedded[mask][None], Packing(starts(mask), starts(mask), False)
    layers: Any = network.encoder.layers
    for layer in layers:
        x = as_layer(layer, _layer)(x, packing, mask)
    return _padded(network.encoder.norm(x)[0], mask)


def _layer(
    layer: Any, x: Float[Tensor, "1 rows d_model"], packing: Packing, mask: Bool[Tensor, "batch length"]
) -> Float[Tensor, "1 rows d_model"]:
    attend = partial(_attend, layer.self_attn, packing=packing, mask=mask)
    return layer.ffn_sublayer(layer.self_attn_sublayer(x, attend), layer.ffn)


def can_pack_encoder(network: EncoderOnly, mask: Bool[Tensor, "batch length"]) -> bool:
    """Whether `packed_hidden` computes what the network does."""
    layers: Any = network.encoder.layers
    weight = layers[0].ffn_sublayer.get_parameter("norm.weight")
    if weight.dtype != torch.float32 or weight.device.type != "cpu" or type(network.encoder.reach) is not Everywhere:
        return False
    if any(layer._forward_hooks for layer in layers) or network.encoder._forward_hooks:  # what skips whole layers
        return False
    attentions = [module for module in network.modules() if isinstance(module, MultiHeadAttention)]
    return all(map(_is_known, attentions)) and packs(widths_of(attentions[0]), mask.size(1))


def _is_known(a: MultiHeadAttention) -> bool:
    if isinstance(a.kernel, DroppingKernel):  # which computes on what the projections make
        return untouched(a) and a.n_kv_heads == a.n_heads
    return is_known(a)


def _attend(
    a: MultiHeadAttention, x: Float[Tensor, "1 rows d_model"], packing: Packing, mask: Bool[Tensor, "batch length"]
) -> Float[Tensor, "1 rows d_model"]:
    if not isinstance(a.kernel, DroppingKernel):
        return self_attention(a, x, packing)
    projections = a.q_proj, a.k_proj, a.v_proj
    parts = project(x[0], *projections).split([part.out_features for part in projections], -1)
    q, k, v = (split_heads(_padded(part, mask), a.n_heads) for part in parts)
    return a.o_proj(merge_heads(a.kernel(q, k, v, over_keys(mask)))[mask])[None]


def _padded(rows: Float[Tensor, "rows width"], mask: Bool[Tensor, "batch length"]) -> Tensor:
    """Packed rows at their places, zeros at the others."""
    return rows.new_zeros(*mask.shape, rows.size(1)).masked_scatter(mask[..., None], rows)

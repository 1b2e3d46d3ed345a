"""A Transformer's pass without padding: real positions one below the other, and attention that keeps sentences apart.

A batch of sentences of different lengths spends a twentieth of a training step on padding, and as much again on
bringing heads into the shape that torch's attention takes. Packed, every product is over real positions only, and
attention reads queries, keys and values where the projections left them. For training on a CPU, with the compiled
library (`sightline.native`). The modules are those of `sightline.network`, which know nothing of this: what they
compute with padding is the oracle.

Under torch's autocast products are in bfloat16, and what stands between two of them stays so; the residual stream,
norms, all sums, parameters and their gradients are float32.
"""

from ctypes import byref
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.native.library import Inputs, PackedShape, multiplies_bfloat16, training_library
from sightline.native.network import LANES
from sightline.network.attention import AsItIs, DotProduct, MultiHeadAttention, merge_heads, split_heads
from sightline.network.embeddings import Embeddings
from sightline.network.masks import Causal, Everywhere
from sightline.network.transformer import Transformer
from sightline.training.recompute import as_layer

NARROWEST = 128  # d_model from which bfloat16 was measured to pay (benchmarks/results/training-bf16_*)
LONGEST = 512  # positions; weights are kept for the backward pass, and beyond this torch's attention needs less memory


@dataclass(frozen=True)
class Packing:
    """Who may attend to whom in packed rows: those of a sentence to those of the same sentence."""

    queries: Int[Tensor, " sentences_and_end"]  # row at which each sentence begins, in int32
    keys: Int[Tensor, " sentences_and_end"]  # the same of what is attended to
    causal: bool  # and to no later ones

    def __post_init__(self) -> None:
        for rows in (self.queries, self.keys):  # which C goes by without looking
            assert rows.dtype == torch.int32 and rows.is_contiguous()
            assert rows[0] == 0 and bool((rows.diff() >= 0).all()), "sentences follow each other from row 0 on"
        assert len(self.queries) == len(self.keys)
        assert not self.causal or torch.equal(self.queries, self.keys), "what is later is known among the same rows"

    @cached_property
    def places(self) -> Int[Tensor, " rows"]:
        """Where each row stands in its sentence."""
        starts = self.queries[:-1].long().repeat_interleave(self.queries.diff().long())
        return torch.arange(len(starts)) - starts

    @property
    def weights(self) -> int:
        """How many weights a head keeps."""
        queries, keys = self.queries.diff(), self.keys.diff()
        return int((queries * ((keys + LANES - 1) // LANES * LANES)).sum())


def starts(mask: Bool[Tensor, "batch length"]) -> Int[Tensor, " sentences_and_end"]:
    """At which row each sentence begins once what `mask` leaves out is gone.

    >>> starts(torch.tensor([[True, True], [True, False]])).tolist()
    [0, 2, 3]
    """
    return torch.nn.functional.pad(mask.sum(1).cumsum(0), (1, 0)).int()


def packed_states(
    network: Transformer,
    src: Int[Tensor, "batch src_len"],
    tgt_in: Int[Tensor, "batch tgt_len"],
    src_mask: Bool[Tensor, "batch src_len"],
    tgt_mask: Bool[Tensor, "batch tgt_len"],
) -> Float[Tensor, "rows d_model"]:
    """What `Transformer.states` gives at the positions that `tgt_mask` is True for, one below the other.

    For a network and masks that `can_pack`.
    """
    sources, targets = starts(src_mask), starts(tgt_mask)
    read, own, cross = (
        Packing(sources, sources, False),
        Packing(targets, targets, True),
        Packing(targets, sources, False),
    )
    memory = _embed(network.src_embeddings, src, src_mask)
    for layer in network.encoder.layers:
        memory = as_layer(layer, _encoder_layer)(memory, read)
    memory = network.encoder.norm(memory)
    x = _embed(network.tgt_embeddings, tgt_in, tgt_mask)
    for layer in network.decoder.layers:
        x = as_layer(layer, _decoder_layer)(x, memory, own, cross)
    return network.decoder.norm(x)[0]


def _embed(
    embeddings: Any, tokens: Int[Tensor, "batch length"], mask: Bool[Tensor, "batch length"]
) -> Float[Tensor, "1 rows d_model"]:
    """Of the tokens that `mask` is True for; they stand left of all padding, so their places are their columns."""
    places, chosen = mask.nonzero()[None, :, 1], tokens[mask][None]
    return embeddings.finish(embeddings.sum(chosen, places, tokens.size(1)))


def _encoder_layer(layer: Any, x: Tensor, packing: Packing) -> Tensor:
    x = layer.self_attn_sublayer(x, lambda h: self_attention(layer.self_attn, h, packing))
    return layer.ffn_sublayer(x, layer.ffn)


def _decoder_layer(layer: Any, x: Tensor, memory: Tensor, own: Packing, cross: Packing) -> Tensor:
    x = layer.self_attn_sublayer(x, lambda h: self_attention(layer.self_attn, h, own))
    x = layer.cross_attn_sublayer(x, lambda h: _cross_attention(layer.cross_attn, h, memory, cross))
    return layer.ffn_sublayer(x, layer.ffn)


def self_attention(a: MultiHeadAttention, x: Float[Tensor, "1 rows d_model"], packing: Packing) -> Tensor:
    qkv, kv = project(x[0], a.q_proj, a.k_proj, a.v_proj), None
    if not untouched(a):
        q, kv = qkv.split([a.q_proj.out_features, qkv.size(1) - a.q_proj.out_features], -1)
        qkv, kv = _turned(a, q, a.q_norm, packing), _with_turned_keys(a, kv, packing)
    return a.o_proj(packed_attention(qkv, kv, a.n_heads, widths_of(a), packing))[None]


def _turned(
    a: MultiHeadAttention, x: Float[Tensor, "rows width"], norm: nn.Module, packing: Packing
) -> Float[Tensor, "rows width"]:
    """What is done to the queries or the keys of every head, in float32: a norm, a turn by each row's place in its
    sentence.
    """
    return merge_heads(a.rotate(norm(split_heads(x.float()[None], a.n_heads)), packing.places))[0].to(x.dtype)


def _with_turned_keys(a: MultiHeadAttention, kv: Float[Tensor, "rows _"], packing: Packing) -> Float[Tensor, "rows _"]:
    """Keys, turned, beside values."""
    k, v = kv.split([a.k_proj.out_features, a.v_proj.out_features], -1)
    return torch.cat([_turned(a, k, a.k_norm, packing), v], -1)


def untouched(a: MultiHeadAttention) -> bool:
    """Whether queries and keys are what the projections make of them."""
    return isinstance(a.rotate, AsItIs) and isinstance(a.q_norm, nn.Identity)


def _cross_attention(a: MultiHeadAttention, x: Tensor, memory: Tensor, packing: Packing) -> Tensor:
    q, kv = a.q_proj(x[0]), project(memory[0], a.k_proj, a.v_proj)
    if not untouched(a):  # by a norm: across sequences nothing is turned
        q, kv = _turned(a, q, a.q_norm, packing), _with_turned_keys(a, kv, packing)
    return a.o_proj(packed_attention(q, kv, a.n_heads, widths_of(a), packing))[None]


def project(x: Float[Tensor, "rows d_model"], *projections: nn.Linear) -> Float[Tensor, "rows _"]:
    """What each of `projections` makes of `x`, side by side, by one matrix product.

    Joining the weights costs a copy of them; having the gradient of `x` from one product instead of a sum of several
    saves more than that.
    """
    if any(type(projection) is not nn.Linear for projection in projections):  # adapters add to what a matrix makes
        return torch.cat([projection(x) for projection in projections], -1)
    weight = torch.cat([projection.weight for projection in projections])
    biases: list[Tensor] = [projection.bias for projection in projections if projection.bias is not None]
    bias = torch.cat(biases) if biases else None
    return F.linear(x, weight, bias)


def widths_of(attention: MultiHeadAttention) -> tuple[int, int]:
    """d_k and d_v of a head."""
    return attention.q_proj.out_features // attention.n_heads, attention.v_proj.out_features // attention.n_heads


def can_pack(network: nn.Module, *masks: Bool[Tensor, "batch _"]) -> bool:
    """Whether `packed_states` computes what the network does, for sentences of which `masks` say what is real."""
    if not isinstance(network, Transformer):
        return False
    weight = network.tgt_embeddings.tokens.weight
    if weight.dtype != torch.float32 or weight.device.type != "cpu":
        return False
    if (type(network.encoder.reach), type(network.decoder.reach)) != (Everywhere, Causal):
        return False
    attentions = [module for module in network.modules() if isinstance(module, MultiHeadAttention)]
    if not (isinstance(network.src_embeddings, Embeddings) and all(map(is_known, attentions))):
        return False
    return packs(widths_of(attentions[0]), max(mask.size(1) for mask in masks))


def is_known(attention: MultiHeadAttention) -> bool:
    """Whether packed attention computes it: a head of keys and values for each of queries, the paper's scores."""
    projections = attention.q_proj, attention.k_proj, attention.v_proj
    return (
        scores_are_plain(attention)
        and (isinstance(attention.rotate, AsItIs) or _is_rotary(attention.rotate))
        and len({projection.bias is None for projection in projections}) == 1
    )


def _is_rotary(module: nn.Module) -> bool:
    from sightline.network.rotary import Rotary  # which the paper's network does without

    return type(module) is Rotary


def are_packable(widths: tuple[int, ...], longest: int) -> bool:
    """Whether the library can pack sentences of up to `longest` positions for heads of these widths."""
    return longest <= LONGEST and not any(width % LANES for width in widths)


def packs(widths: tuple[int, ...], longest: int) -> bool:
    """Whether they are packed here: the library is installed."""
    return are_packable(widths, longest) and training_library() is not None


def pays_in_bfloat16(d_model: int) -> bool:
    """Whether a packed training step is faster under torch's autocast: by products alone, which torch leaves to oneDNN,
    where the processor has instructions for them.
    """
    return d_model >= NARROWEST and multiplies_bfloat16() and torch.backends.mkldnn.is_available()


def packed_attention(
    q: Float[Tensor, "queries q_width"],
    kv: Float[Tensor, "keys kv_width"] | None,
    n_heads: int,
    widths: tuple[int, int],
    packing: Packing,
) -> Float[Tensor, "queries v_width"]:
    """softmax(Q K^T / sqrt(d_k)) V for all heads of all sentences (equation 1).

    Args:
        q: queries of all heads; where `kv` is None, keys and values of the same rows stand beside them.
        kv: keys beside values.
        n_heads: how many heads there are.
        widths: d_k and d_v of a head, multiples of 8.
        packing: which rows belong together.
    """
    d_k, d_v = widths
    shape = (n_heads * (2 * d_k + d_v),) if kv is None else (n_heads * d_k, n_heads * (d_k + d_v))
    given = (q,) if kv is None else (q, kv)
    assert tuple(x.size(1) for x in given) == shape and not (d_k % LANES or d_v % LANES)
    assert q.dtype in (torch.float32, torch.bfloat16)
    assert all(x.dtype == q.dtype and x.device.type == "cpu" for x in given)
    assert (packing.queries[-1], packing.keys[-1]) == (len(q), len(given[-1])), "every row belongs to a sentence"
    return _PackedAttention.apply(q, kv, n_heads, widths, packing)


class _PackedAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, kv: Tensor | None, n_heads: int, widths: tuple[int, int], packing: Packing
    ) -> Tensor:
        q, kv = q.contiguous(), None if kv is None else kv.contiguous()
        weights = q.new_empty(n_heads * packing.weights, dtype=torch.float32)
        out = q.new_empty(len(q), n_heads * widths[1])
        shape = _shape(packing, n_heads, widths, q.dtype)
        _call("attend", byref(shape), byref(_inputs(q, kv, n_heads, widths)), weights.data_ptr(), out.data_ptr())
        ctx.save_for_backward(q, kv, weights)
        ctx.how = n_heads, widths, packing
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None, None, None]:
        q, kv, weights = ctx.saved_tensors
        n_heads, widths, packing = ctx.how
        grad = grads[0].contiguous()
        grad_q, grad_kv = torch.empty_like(q), None if kv is None else torch.empty_like(kv)
        shape = _shape(packing, n_heads, widths, q.dtype)
        inputs, gradients = (_inputs(*x, n_heads, widths) for x in ((q, kv), (grad_q, grad_kv)))
        _call("attend_backward", byref(shape), byref(inputs), weights.data_ptr(), grad.data_ptr(), byref(gradients))
        return grad_q, grad_kv, None, None, None


def _shape(packing: Packing, n_heads: int, widths: tuple[int, int], dtype: torch.dtype) -> PackedShape:
    sentences = len(packing.queries) - 1
    at = packing.queries.data_ptr(), packing.keys.data_ptr()
    return PackedShape(*at, sentences, packing.causal, n_heads, *widths, dtype == torch.bfloat16)


def _inputs(q: Tensor, kv: Tensor | None, n_heads: int, widths: tuple[int, int]) -> Inputs:
    """Where queries, keys and values begin, and the distance of their rows."""
    k_bytes = q.element_size() * n_heads * widths[0]
    if kv is None:
        at, stride = q.data_ptr(), q.size(1)
        return Inputs(at, at + k_bytes, at + 2 * k_bytes, stride, stride, stride)
    at, stride = kv.data_ptr(), kv.size(1)
    return Inputs(q.data_ptr(), at, at + k_bytes, q.size(1), stride, stride)


def _call(name: str, *arguments: Any) -> None:
    if getattr(training_library(), f"sightline_{name}")(*arguments, torch.get_num_threads()):
        raise MemoryError("no memory for attention")


def scores_are_plain(attention: MultiHeadAttention) -> bool:
    """Whether queries and keys, whatever was done to them, meet as in equation 1, a head of each for the other."""
    kernel, d_k = attention.kernel, attention.q_proj.out_features // attention.n_heads
    paper = type(kernel) is DotProduct and kernel.scale in (0.0, d_k**-0.5)
    return paper and attention.n_kv_heads == attention.n_heads

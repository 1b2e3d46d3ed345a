"""Training on a CPU without padding: a packed view of a batch, and attention for it by the compiled library.

Padding takes a twentieth of a training step, and reshaping heads for torch's attention as much again. The modules of
`headwise.network` also accept packed batches, which are made here: all real tokens in one row, and a `Packing`, which
knows the sequences and computes attention. Tests compare results with padded batches
(`tests/unit/training/test_packed.py`).

Under autocast, matrix products and attention are bfloat16; the residual stream, norms, sums, parameters and gradients
are float32.
"""

from collections.abc import Callable
from ctypes import byref
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headwise.native.library import Inputs, multiplies_bfloat16, training_library
from headwise.native.library import Packing as PackedShape
from headwise.native.linear import LANES
from headwise.network.attention import DotProduct, Kernel, MultiHeadAttention, NoRotation, merge_heads, split_heads
from headwise.network.embeddings import Embeddings
from headwise.network.extra_dropout import DroppingKernel
from headwise.network.interventions import is_intervened
from headwise.network.masks import Causal, Everywhere, Packing
from headwise.network.rotary import Rotary
from headwise.network.transformer import EncoderOnly, Transformer

NARROWEST = 128  # smallest d_model for which bfloat16 is faster (benchmarks/results/training-bf16_*)
LONGEST = 512  # positions; for longer sequences torch's attention needs less memory, as it does not store weights


# --- The packed view of a batch ---


def starts(mask: Bool[Tensor, "batch length"]) -> Int[Tensor, " sequences_and_end"]:
    """The row at which each sequence starts once padding is removed, and the end; `mask` is True on real tokens.

    >>> starts(torch.tensor([[True, True], [True, False]])).tolist()
    [0, 2, 3]
    """
    return nn.functional.pad(mask.sum(1).cumsum(0), (1, 0)).int()


def packed_states(
    network: Transformer,
    src: Int[Tensor, "batch src_len"],
    tgt_in: Int[Tensor, "batch tgt_len"],
    src_mask: Bool[Tensor, "batch src_len"],
    tgt_mask: Bool[Tensor, "batch tgt_len"],
) -> Float[Tensor, "rows d_model"]:
    """The output of `Transformer.states` at the positions where `tgt_mask` is True, without padding.

    Real tokens come before padding in both masks. Requires `can_pack`.
    """
    sources, targets = starts(src_mask), starts(tgt_mask)
    memory = network.encode(src[src_mask][None], Packing(sources, sources, False, attend_packed))
    return network.decode(tgt_in[tgt_mask][None], memory, Packing(targets, sources, False, attend_packed))[0]


def packed_hidden(
    network: EncoderOnly,
    src: Int[Tensor, "batch length"],
    mask: Bool[Tensor, "batch length"],
    types: Int[Tensor, "batch length"] | None = None,
) -> Float[Tensor, "batch length d_model"]:
    """The output of `EncoderOnly.encode`, computed without padding; padding is zero."""
    embedded, rows = network.embeddings(src) if types is None else network.embeddings(src, types=types), starts(mask)
    return padded_rows(network.encoder(embedded[mask][None], Packing(rows, rows, False, attend_packed)), mask)


def packed_forward(network: nn.Module) -> Callable[..., Tensor]:
    """A function that calls `network`, packed if possible."""

    def forward(src: Tensor, mask: Tensor, types: Tensor | None = None) -> Tensor:
        if isinstance(network, EncoderOnly):
            return network.logits(states(src, mask, types), mask)
        return network(src, mask, types)

    states = packed_states_of(network)
    return forward


def packed_states_of(network: Any) -> Callable[..., Tensor]:
    """A function that returns the last hidden states of `network`; those of padding are undefined."""

    def encode(src: Tensor, mask: Tensor, types: Tensor | None = None) -> Tensor:
        if can_pack_encoder(network, mask):
            return packed_hidden(network, src, mask, types)
        return network.encode(src, mask, types)

    return encode


def padded_rows(rows: Float[Tensor, "1 rows width"], mask: Bool[Tensor, "batch length"]) -> Float[Tensor, "..."]:
    """Packed rows at the positions where `mask` is True, zeros at the others."""
    return rows.new_zeros(*mask.shape, rows.size(2)).masked_scatter(mask[..., None], rows)


# --- Which networks and batches can be packed ---


def can_pack(network: nn.Module, *masks: Bool[Tensor, "batch _"]) -> bool:
    """Whether `packed_states` is equivalent to `network`, for sentences with these masks."""
    if not isinstance(network, Transformer):
        return False
    return (
        (type(network.encoder.reach), type(network.decoder.reach)) == (Everywhere, Causal)
        and isinstance(network.src_embeddings, Embeddings)
        and _is_supported(network, network.tgt_embeddings.tokens.weight, max(mask.size(1) for mask in masks), is_known)
    )


def can_pack_encoder(network: EncoderOnly, mask: Bool[Tensor, "batch length"]) -> bool:
    """Whether `packed_hidden` is equivalent to `network`; False with hooks on layers."""
    layers: Any = network.encoder.layers
    return (
        type(network.encoder.reach) is Everywhere
        and not any(module._forward_hooks for module in (network.encoder, *layers))
        and _is_supported(network, layers[0].ffn_sublayer.norm.weight, mask.size(1), _is_known_or_dropout)
    )


def _is_supported(
    network: nn.Module, weight: Tensor, longest: int, known: Callable[[MultiHeadAttention], bool]
) -> bool:
    attentions = [module for module in network.modules() if isinstance(module, MultiHeadAttention)]
    on_cpu = weight.dtype == torch.float32 and weight.device.type == "cpu"
    plain = on_cpu and not is_intervened(network)
    return plain and all(map(known, attentions)) and packs(widths_of(attentions[0]), longest)


def widths_of(attention: MultiHeadAttention) -> tuple[int, int]:
    """d_k and d_v of a head."""
    return attention.q_proj.out_features // attention.n_heads, attention.v_proj.out_features // attention.n_heads


def is_known(attention: MultiHeadAttention) -> bool:
    """Whether packed attention is equivalent: equation 1 with as many key heads as query heads."""
    projections = attention.q_proj, attention.k_proj, attention.v_proj
    return (
        _is_equation_1(attention.kernel, widths_of(attention)[0])
        and attention.n_kv_heads == attention.n_heads
        and type(attention.rotate) in (NoRotation, Rotary)
        and len({projection.bias is None for projection in projections}) == 1
    )


def _is_known_or_dropout(attention: MultiHeadAttention) -> bool:
    """Like `is_known`, or attention with dropout on weights, which is computed with padding."""
    if isinstance(attention.kernel, DroppingKernel):
        return attention.plain_heads and attention.n_kv_heads == attention.n_heads
    return is_known(attention)


def _is_equation_1(kernel: Kernel, d_k: int) -> bool:
    return type(kernel) is DotProduct and kernel.scale in (0.0, d_k**-0.5)


def are_packable(widths: tuple[int, ...], longest: int) -> bool:
    """Whether the library can pack sentences of up to `longest` positions for heads of these widths."""
    return longest <= LONGEST and not any(width % LANES for width in widths)


def packs(widths: tuple[int, ...], longest: int) -> bool:
    """Whether they can be packed and the library is available."""
    return are_packable(widths, longest) and training_library() is not None


def pays_in_bfloat16(d_model: int) -> bool:
    """Whether a packed training step is faster under torch's autocast.

    Only matrix products are, if the processor has bfloat16 instructions; torch uses oneDNN for them.
    """
    return d_model >= NARROWEST and multiplies_bfloat16() and torch.backends.mkldnn.is_available()


# --- Attention ---


def attend_packed(
    kernel: Kernel,
    q: Float[Tensor, "1 heads queries d_k"],
    k: Float[Tensor, "1 heads keys d_k"],
    v: Float[Tensor, "1 heads keys d_v"],
    packing: Packing,
) -> Float[Tensor, "1 heads queries d_v"]:
    """The output of `kernel` by the compiled library; unsupported kernels run self-attention on padded tensors."""
    if _is_equation_1(kernel, q.size(-1)):
        return packed_attention(q, k, v, packing)
    lengths = packing.queries.diff()
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    q, k, v = (split_heads(padded_rows(merge_heads(x), mask), x.size(1)) for x in (q, k, v))
    return split_heads(merge_heads(kernel(q, k, v, mask[:, None, None, :]))[mask][None], q.size(1))


def packed_attention(
    q: Float[Tensor, "1 heads queries d_k"],
    k: Float[Tensor, "1 heads keys d_k"],
    v: Float[Tensor, "1 heads keys d_v"],
    packing: Packing,
) -> Float[Tensor, "1 heads queries d_v"]:
    """softmax(Q K^T / sqrt(d_k)) V for all heads of all sequences (equation 1), by the compiled library.

    d_k and d_v are multiples of 8; numbers are float32 or bfloat16.
    """
    assert k.shape[:3] == v.shape[:3] and q.size(1) == k.size(1) and q.size(3) == k.size(3)
    assert not (q.size(3) % LANES or v.size(3) % LANES)
    assert q.dtype in (torch.float32, torch.bfloat16)
    assert all(x.dtype == q.dtype and x.device.type == "cpu" for x in (k, v))
    assert (packing.queries[-1], packing.keys[-1]) == (q.size(2), k.size(2)), "every row belongs to a sequence"
    return _PackedAttention.apply(q, k, v, packing)


class _PackedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, packing: Packing) -> Tensor:
        q, k, v = map(_row_by_row, (q, k, v))
        weights = q.new_empty(q.size(1) * _weights_of_a_head(packing), dtype=torch.float32)
        out = q.new_empty(1, q.size(2), q.size(1) * v.size(3))
        _call("attend", byref(_shape(packing, q, v)), byref(_inputs(q, k, v)), weights.data_ptr(), out.data_ptr())
        ctx.save_for_backward(q, k, v, weights)
        ctx.packing = packing
        return split_heads(out, q.size(1))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weights = ctx.saved_tensors
        grad, gradients = merge_heads(grads[0]).contiguous(), _gradients(q, k, v, ctx.packing)
        shape, inputs, outputs = _shape(ctx.packing, q, v), _inputs(q, k, v), _inputs(*gradients)
        _call("attend_backward", byref(shape), byref(inputs), weights.data_ptr(), grad.data_ptr(), byref(outputs))
        return *gradients, None


def _row_by_row(x: Float[Tensor, "1 heads rows d_head"]) -> Float[Tensor, "1 heads rows d_head"]:
    """`x` with the heads of a row adjacent in memory, copied if necessary."""
    in_order = x.stride(3) == 1 and (x.size(1) == 1 or x.stride(1) == x.size(3))
    return x if in_order else split_heads(merge_heads(x).contiguous(), x.size(1))


def _gradients(q: Tensor, k: Tensor, v: Tensor, packing: Packing) -> list[Tensor]:
    """Uninitialised gradients, adjacent in memory if one matrix product computed their inputs."""
    joined = ((q, k, v),) if packing.queries is packing.keys else ((q,), (k, v))
    gradients: list[Tensor] = []
    for group in joined:
        widths = [x.size(1) * x.size(3) for x in group]
        parts = group[0].new_empty(1, group[0].size(2), sum(widths)).split(widths, -1)
        gradients += [split_heads(part, q.size(1)) for part in parts]
    return gradients


def _weights_of_a_head(packing: Packing) -> int:
    """The number of attention weights of a head."""
    return int((packing.queries.diff() * ((packing.keys.diff() + LANES - 1) // LANES * LANES)).sum())


def _shape(packing: Packing, q: Tensor, v: Tensor) -> PackedShape:
    at, n_sequences = (packing.queries.data_ptr(), packing.keys.data_ptr()), len(packing.queries) - 1
    return PackedShape(*at, n_sequences, packing.causal, q.size(1), q.size(3), v.size(3), q.dtype == torch.bfloat16)


def _inputs(q: Tensor, k: Tensor, v: Tensor) -> Inputs:
    """Addresses of queries, keys and values, and the strides of their rows."""
    return Inputs(*(x.data_ptr() for x in (q, k, v)), *(x.stride(2) for x in (q, k, v)))


def _call(name: str, *arguments: Any) -> None:
    if getattr(training_library(), f"headwise_{name}")(*arguments, torch.get_num_threads()):
        raise MemoryError("no memory for attention")

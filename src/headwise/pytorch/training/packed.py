"""Training without padding: a packed view of a batch, and attention for it.

On a CPU, padding takes a twentieth of a training step, and reshaping heads for torch's attention as much again. The
modules of `headwise.core` also accept packed batches, which are made here: all real tokens in one row, and a
`Packing`, which knows the sequences and computes attention: by the compiled library on a CPU, and by torch's
`varlen_attn` (FlashAttention) on CUDA, if HEADWISE_PACK is 1; `_attention` chooses. A GPU is not waited for. Tests
compare results with padded batches (`tests/unit/training/test_packed.py`, `test_varlen.py`). CUDA itself is untested.

Under autocast, matrix products and attention are bfloat16; the residual stream, norms, sums, parameters and gradients
are float32.
"""

import inspect
from collections.abc import Callable
from ctypes import byref
from functools import cache
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headwise.core.attention import DotProduct, Kernel, MultiHeadAttention, NoRotation, merge_heads, split_heads
from headwise.core.batches import PaddedBatch
from headwise.core.embeddings import Embeddings
from headwise.core.extensions.rotary import Rotary
from headwise.core.masks import Causal, Everywhere, PackedRows, Packing
from headwise.core.transformer import EncoderOnly, Transformer
from headwise.device import PACK, is_on
from headwise.pytorch.search.changes import is_intervened
from headwise.pytorch.training.extra_dropout import DroppingKernel
from headwise.runtime.native.library import Inputs, multiplies_bfloat16, training_library
from headwise.runtime.native.library import Packing as PackedShape
from headwise.runtime.native.linear import LANES

NARROWEST = 128  # smallest d_model for which bfloat16 is faster (benchmarks/results/training-bf16_*)
LONGEST = 512  # positions; for longer sequences torch's attention needs less memory, as it does not store weights
WIDEST = 192  # heads of FlashAttention; on some GPUs wider ones have no backward pass
Attention = Callable[[Kernel, Tensor, Tensor, Tensor, Packing], Tensor]  # of a `Packing`


# --- The packed view of a batch ---


def packed_states(
    network: Transformer,
    src: Int[Tensor, "batch src_len"],
    tgt_in: Int[Tensor, "batch tgt_len"],
    sources: PackedRows,
    targets: PackedRows,
    attend: Attention,
) -> Float[Tensor, "rows d_model"]:
    """The output of `Transformer.states` for the rows `targets`, without padding; `attend` is of `attention_for`."""
    memory = network.encode(sources.of(src), Packing(sources, sources, False, attend))
    return network.decode(targets.of(tgt_in), memory, Packing(targets, sources, False, attend))[0]


def packed_hidden(
    network: EncoderOnly,
    src: Int[Tensor, "batch length"],
    rows: PackedRows,
    attend: Attention,
    types: Int[Tensor, "batch length"] | None = None,
) -> Float[Tensor, "batch length d_model"]:
    """The output of `EncoderOnly.encode`, computed without padding; padding is zero."""
    embedded = network.embeddings(src) if types is None else network.embeddings(src, types=types)
    return rows.padded(network.encoder(rows.of(embedded), Packing(rows, rows, False, attend)))


def forward_of(network: nn.Module, compiled: bool = False) -> Callable[[PaddedBatch], Tensor]:
    """A function from a batch to the output of `network`: compiled, or packed if possible."""
    if isinstance(network, EncoderOnly) and not compiled:
        states = states_of(network)
        return lambda batch: network.logits(states(batch), batch.src_mask)
    forward: Callable[..., Tensor] = torch.compile(network) if compiled else network
    return lambda batch: forward(*batch.inputs)


def states_of(network: EncoderOnly, compiled: bool = False) -> Callable[[PaddedBatch], Tensor]:
    """A function from a batch to the last hidden states of `network`; those of padding are undefined."""
    encode: Callable[..., Tensor] = torch.compile(network.encode) if compiled else network.encode

    def states(batch: PaddedBatch) -> Tensor:
        attend = None if compiled else attention_for_encoder(network, batch.src_mask)
        if attend is None:
            return encode(*batch.inputs)
        src, mask, *types = batch.inputs
        return packed_hidden(network, src, PackedRows(mask, batch.n_real), attend, *types)

    return states


# --- Which networks and batches can be packed ---


def attention_for(network: nn.Module, *masks: Bool[Tensor, "batch _"]) -> Attention | None:
    """The attention for `packed_states` of sentences with these masks; None if they need padding."""
    if not isinstance(network, Transformer) or not isinstance(network.src_embeddings, Embeddings):
        return None
    if (type(network.encoder.reach), type(network.decoder.reach)) != (Everywhere, Causal):
        return None
    return _attention(network, network.tgt_embeddings.tokens.weight, max(mask.size(1) for mask in masks), is_known)


def attention_for_encoder(network: EncoderOnly, mask: Bool[Tensor, "batch length"]) -> Attention | None:
    """The attention for `packed_hidden`; None if texts need padding, as with hooks on layers."""
    layers: Any = network.encoder.layers
    hooked = any(module._forward_hooks for module in (network.encoder, *layers))
    if hooked or type(network.encoder.reach) is not Everywhere:
        return None
    return _attention(network, layers[0].ffn_sublayer.norm.weight, mask.size(1), _is_known_or_dropout)


def _attention(
    network: nn.Module, weight: Tensor, longest: int, known: Callable[[MultiHeadAttention], bool]
) -> Attention | None:
    """The compiled library, `varlen_attn` or None; `weight` is any parameter of the network."""
    attentions = [module for module in network.modules() if isinstance(module, MultiHeadAttention)]
    if is_intervened(network) or not all(map(known, attentions)):
        return None
    widths = widths_of(attentions[0])
    if runs_varlen(weight.device, widths):
        return attend_by_varlen
    on_cpu = weight.dtype == torch.float32 and weight.device.type == "cpu"
    return attend_by_library if on_cpu and packs(widths, longest) else None


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


# --- Attention on CUDA ---


def runs_varlen(device: torch.device, widths: tuple[int, int]) -> bool:
    """Whether `varlen_attn` trains heads of these widths here: switched on, in bfloat16, on a CUDA device.

    https://docs.pytorch.org/docs/stable/nn.attention.varlen.html
    """
    return (
        device.type == "cuda"
        and is_on(PACK)
        and torch.is_autocast_enabled("cuda")
        and torch.get_autocast_dtype("cuda") == torch.bfloat16
        and widths[0] == widths[1] <= WIDEST
        and widths[0] % 8 == 0
        and has_varlen(device)
    )


@cache
def has_varlen(device: torch.device) -> bool:
    """Whether this torch has `varlen_attn` for a CUDA device; before 2.11 it had other arguments."""
    flash = torch.version.hip is None and torch.backends.cuda.is_flash_attention_available()
    if not flash or torch.cuda.get_device_capability(device) < (8, 0):
        return False
    try:
        from torch.nn.attention.varlen import varlen_attn  # slow to import
    except ImportError:
        return False
    return "window_size" in inspect.signature(varlen_attn).parameters


def varlen_attention(
    q: Float[Tensor, "1 heads queries width"],
    k: Float[Tensor, "1 heads keys width"],
    v: Float[Tensor, "1 heads keys width"],
    packing: Packing,
) -> Float[Tensor, "1 heads queries width"]:
    """Equation 1 for all heads of all sequences, by torch's FlashAttention; requires `runs_varlen`."""
    from torch.nn.attention.varlen import varlen_attn  # slow to import

    q, k, v = (x[0].transpose(0, 1) for x in (q, k, v))
    starts, longest = (packing.queries.starts, packing.keys.starts), (packing.queries.longest, packing.keys.longest)
    out = varlen_attn(q, k, v, *starts, *longest, window_size=(-1, 0) if packing.causal else (-1, -1))
    assert isinstance(out, Tensor)  # nothing else was asked for
    return out.transpose(0, 1)[None]


def attend_by_varlen(kernel: Kernel, q: Tensor, k: Tensor, v: Tensor, packing: Packing) -> Tensor:
    """The `attend` of a `Packing` on CUDA."""
    return _attend(varlen_attention, kernel, q, k, v, packing)


def _attend(
    equation_1: Callable[..., Tensor],
    kernel: Kernel,
    q: Float[Tensor, "1 heads queries d_k"],
    k: Float[Tensor, "1 heads keys d_k"],
    v: Float[Tensor, "1 heads keys d_v"],
    packing: Packing,
) -> Float[Tensor, "1 heads queries d_v"]:
    """The output of `kernel` by `equation_1` if possible; other kernels run self-attention on padded tensors."""
    if _is_equation_1(kernel, q.size(-1)):
        return equation_1(q, k, v, packing)
    rows = packing.queries
    q, k, v = (split_heads(rows.padded(merge_heads(x)), x.size(1)) for x in (q, k, v))
    return split_heads(rows.of(merge_heads(kernel(q, k, v, rows.mask[:, None, None, :]))), q.size(1))


# --- Attention on a CPU ---


def attend_by_library(kernel: Kernel, q: Tensor, k: Tensor, v: Tensor, packing: Packing) -> Tensor:
    """The `attend` of a `Packing` on a CPU."""
    return _attend(packed_attention, kernel, q, k, v, packing)


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
    ends = packing.queries.starts[-1], packing.keys.starts[-1]
    assert ends == (q.size(2), k.size(2)), "every row belongs to a sequence"
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
    queries, keys = packing.queries.starts.diff(), packing.keys.starts.diff()
    return int((queries * ((keys + LANES - 1) // LANES * LANES)).sum())


def _shape(packing: Packing, q: Tensor, v: Tensor) -> PackedShape:
    queries, keys = packing.queries.starts, packing.keys.starts
    ends, widths = (queries.data_ptr(), keys.data_ptr(), len(queries) - 1), (q.size(1), q.size(3), v.size(3))
    return PackedShape(*ends, packing.causal, *widths, q.dtype == torch.bfloat16)


def _inputs(q: Tensor, k: Tensor, v: Tensor) -> Inputs:
    """Addresses of queries, keys and values, and the strides of their rows."""
    return Inputs(*(x.data_ptr() for x in (q, k, v)), *(x.stride(2) for x in (q, k, v)))


def _call(name: str, *arguments: Any) -> None:
    if getattr(training_library(), f"headwise_{name}")(*arguments, torch.get_num_threads()):
        raise MemoryError("no memory for attention")

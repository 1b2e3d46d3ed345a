"""ConvS2S (Gehring 2017, arXiv:1705.03122): stacks of gated convolutions, attention in every layer of the decoder.

A layer of width k adds k - 1 positions to the receptive field, so n layers see 1 + n (k - 1) positions. Training
computes all positions at once; decoding caches the last k - 1 inputs of each layer.

Deviations from the paper: embeddings and all layers have the same width, so the context is not projected; there is no
output bias, since trainer, loss, Adam and its schedule are the Transformer's.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.core.dropout import Dropout
from headwise.core.positions import LearnedPositions, sequential_positions
from headwise.pytorch.architectures.attention import DotAttention

HALF_VARIANCE = math.sqrt(0.5)  # keeps the variance of a sum of two inputs (section 3.4)


class NormalizedLinear(nn.Module):
    """x W^T + b with W = g v / |v| for each output (weight normalisation, arXiv:1602.07868; section 3.5).

    v starts normal with standard deviation sqrt(gain (1 - dropout) / inputs): gain 4 before a gated linear unit, which
    passes a quarter of the variance, otherwise 1 (section 3.5). g starts as |v|, so that W is v, and b at 0.
    """

    def __init__(self, n_inputs: int, n_outputs: int, gain: float = 1.0, dropout: float = 0.0) -> None:
        super().__init__()
        direction = torch.empty(n_outputs, n_inputs)
        nn.init.normal_(direction, std=math.sqrt(gain * (1 - dropout) / n_inputs))
        self.direction = nn.Parameter(direction)
        self.magnitude = nn.Parameter(direction.norm(dim=1))
        self.bias = nn.Parameter(torch.zeros(n_outputs))

    def forward(self, x: Float[Tensor, "*any inputs"]) -> Float[Tensor, "*any outputs"]:
        scale = self.magnitude / self.direction.norm(dim=1)
        return F.linear(x, self.direction * scale.unsqueeze(1), self.bias)


class GatedConvolution(nn.Module):
    """A convolution of width k to twice the channels and a gated linear unit: A * sigmoid(B) (section 3.2)."""

    def __init__(self, d_model: int, kernel_width: int, dropout: float) -> None:
        super().__init__()
        self.kernel_width = kernel_width
        self.proj = NormalizedLinear(kernel_width * d_model, 2 * d_model, gain=4.0, dropout=dropout)

    def forward(self, x: Float[Tensor, "batch padded d_model"]) -> Float[Tensor, "batch length d_model"]:
        """Each window of k positions becomes one; `x` has k - 1 more positions than the output."""
        windows = torch.cat([x[:, i : x.size(1) - self.kernel_width + 1 + i] for i in range(self.kernel_width)], -1)
        return F.glu(self.proj(windows))


class ConvEmbeddings(nn.Module):
    """dropout(E[token] + P[position]) (section 3.1), neither of them scaled."""

    def __init__(self, tokens: nn.Embedding, positions: LearnedPositions, dropout: float) -> None:
        super().__init__()
        self.tokens = tokens
        self.positions = positions
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Int[Tensor, "batch length"], start: int = 0) -> Float[Tensor, "batch length d_model"]:
        """Embeddings of `tokens`; the first has position `start`."""
        return self.dropout(self.tokens(tokens) + self.positions(*sequential_positions(tokens, start)))


class ConvEncoderLayer(nn.Module):
    """(x + GLU(conv(x))) sqrt(1/2); a position sees (k - 1) / 2 positions on each side (section 3.2)."""

    def __init__(self, conv: GatedConvolution, dropout: float) -> None:
        super().__init__()
        self.conv = conv
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "batch src_len d_model"], src_mask: Bool[Tensor, "batch src_len"]
    ) -> Float[Tensor, "batch src_len d_model"]:
        """Same shape in and out. Padding is 0, like the surroundings of a sentence."""
        side = (self.conv.kernel_width - 1) // 2
        inputs = F.pad(self.dropout(x) * src_mask.unsqueeze(-1), (0, 0, side, side))
        return (x + self.conv(inputs)) * HALF_VARIANCE


class ConvDecoderLayer(nn.Module):
    """h = GLU(conv(x)) over the past; query d = W h + b + g with g the embedding of y_{i-1}; h + c; residual (3.3).

    The context c is multiplied by m sqrt(1/m) for m source positions, as for uniform attention (section 3.4). Sums,
    including the query, are scaled by sqrt(1/2).
    """

    def __init__(
        self, conv: GatedConvolution, q_proj: NormalizedLinear, cross_attn: DotAttention, dropout: float
    ) -> None:
        super().__init__()
        self.conv = conv
        self.q_proj = q_proj
        self.cross_attn = cross_attn
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "rows tgt_len d_model"],
        embedded: Float[Tensor, "rows tgt_len d_model"],
        keys: Float[Tensor, "rows src_len d_model"],
        values: Float[Tensor, "rows src_len d_model"],
        src_mask: Bool[Tensor, "rows src_len"],
        past: Float[Tensor, "rows kept d_model"],
    ) -> tuple[Float[Tensor, "rows tgt_len d_model"], Float[Tensor, "rows kept d_model"]]:
        """Output, and the k - 1 inputs that the next position needs; `past` are those before `x`."""
        inputs = torch.cat([past, self.dropout(x)], 1)
        h = self.conv(inputs)
        query = (self.q_proj(h) + embedded) * HALF_VARIANCE
        context = self.cross_attn(query, keys, values, src_mask) * src_mask.sum(1).to(x.dtype).sqrt()[:, None, None]
        h = (h + context) * HALF_VARIANCE
        return (x + h) * HALF_VARIANCE, inputs[:, x.size(1) :]


@dataclass(frozen=True)
class ConvMemory:
    """The encoder's output for the decoder."""

    keys: Float[Tensor, "batch src_len d_model"]  # z, the encoder's output
    values: Float[Tensor, "batch src_len d_model"]  # z + e, with e the embedding of the token (section 3.3)

    def select(self, index: Int[Tensor, " kept"]) -> "ConvMemory":
        """The rows of `index`."""
        return ConvMemory(self.keys.index_select(0, index), self.values.index_select(0, index))


@dataclass
class ConvCache:
    """State of incremental decoding of `rows` hypotheses."""

    memory: ConvMemory
    src_mask: Bool[Tensor, "rows src_len"]
    past: list[Float[Tensor, "rows kept d_model"]]  # the last k - 1 inputs of each decoder layer
    length: int = 0  # target positions decoded so far

    def reorder(self, index: Int[Tensor, " rows"]) -> None:
        """Row i becomes row index[i] of the same sentence; the source side does not change."""
        self.past = [inputs.index_select(0, index) for inputs in self.past]

    def select(self, index: Int[Tensor, " kept"]) -> None:
        """Keep the rows of `index`, in its order; they may belong to different sentences."""
        self.reorder(index)
        self.memory = self.memory.select(index)
        self.src_mask = self.src_mask.index_select(0, index)


class ConvEncoder(nn.Module):
    """Linear map, layers, linear map; values add the embeddings (sections 3.2 and 3.3).

    The gradient into the layers (not the embeddings) is divided by the number of attention layers (3.4).
    """

    def __init__(
        self, in_proj: NormalizedLinear, layers: Sequence[nn.Module], out_proj: NormalizedLinear, n_attentions: int
    ) -> None:
        super().__init__()
        self.in_proj = in_proj
        self.layers = nn.ModuleList(layers)
        self.out_proj = out_proj
        self.gradient_scale = 1 / n_attentions

    def forward(
        self, embedded: Float[Tensor, "batch src_len d_model"], src_mask: Bool[Tensor, "batch src_len"]
    ) -> ConvMemory:
        x = self.in_proj(embedded)
        for layer in self.layers:
            x = layer(x, src_mask)
        z = _ScaledGradient.apply(self.out_proj(x), self.gradient_scale)
        return ConvMemory(z, (z + embedded) * HALF_VARIANCE)


class _ScaledGradient(torch.autograd.Function):
    """The identity, with a scaled gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0] * ctx.scale, None


class ConvDecoder(nn.Module):
    """Linear map, layers with attention, linear map (section 3.3)."""

    def __init__(self, in_proj: NormalizedLinear, layers: Sequence[nn.Module], out_proj: NormalizedLinear) -> None:
        super().__init__()
        self.in_proj = in_proj
        self.layers = nn.ModuleList(layers)
        self.out_proj = out_proj

    def forward(
        self,
        embedded: Float[Tensor, "rows tgt_len d_model"],
        memory: ConvMemory,
        src_mask: Bool[Tensor, "rows src_len"],
        past: list[Float[Tensor, "rows kept d_model"]],
    ) -> tuple[Float[Tensor, "rows tgt_len d_model"], list[Float[Tensor, "rows kept d_model"]]]:
        """Output, and the inputs of each layer for the next position."""
        x, kept = self.in_proj(embedded), []
        for layer, before in zip(self.layers, past, strict=True):
            x, inputs = layer(x, embedded, memory.keys, memory.values, src_mask, before)
            kept.append(inputs)
        return self.out_proj(x), kept


class Convolutional(nn.Module):
    """ConvS2S; build one with `headwise.pytorch.architectures.build`."""

    def __init__(
        self,
        src_embeddings: ConvEmbeddings,
        tgt_embeddings: ConvEmbeddings,
        encoder: ConvEncoder,
        decoder: ConvDecoder,
        output: nn.Linear,
        dropout: float,
        kernel_width: int,
    ) -> None:
        super().__init__()
        self.src_embeddings = src_embeddings
        self.tgt_embeddings = tgt_embeddings
        self.encoder = encoder
        self.decoder = decoder
        self.output = output
        self.dropout = Dropout(dropout)
        self.n_kept = kernel_width - 1

    def encode(self, src: Int[Tensor, "batch src_len"], src_mask: Bool[Tensor, "batch src_len"]) -> ConvMemory:
        """The encoder's output. `src_mask` is True on real tokens."""
        return self.encoder(self.src_embeddings(src), src_mask)

    def decode(
        self,
        tgt_in: Int[Tensor, "batch tgt_len"],
        memory: ConvMemory,
        src_mask: Bool[Tensor, "batch src_len"],
        cache: ConvCache | None = None,
    ) -> Float[Tensor, "batch tgt_len d_model"]:
        """Hidden states that predict the token after each of `tgt_in`.

        With a cache, `tgt_in` holds the new positions only; they are added to the cache.
        """
        state = self.start_cache(memory, src_mask) if cache is None else cache
        embedded = self.tgt_embeddings(tgt_in, state.length)
        hidden, state.past = self.decoder(embedded, memory, src_mask, state.past)
        state.length += tgt_in.size(1)
        return self.dropout(hidden)

    def logits(self, hidden: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any vocab"]:
        """Unnormalised scores of the next token."""
        return self.output(hidden)

    def start_cache(self, memory: ConvMemory, src_mask: Bool[Tensor, "batch src_len"]) -> ConvCache:
        """The empty cache to decode these sources with; inputs before the first position are 0."""
        batch, _, d_model = memory.keys.shape
        nothing = memory.keys.new_zeros(batch, self.n_kept, d_model)
        return ConvCache(memory, src_mask, [nothing] * len(self.decoder.layers))

    def states(
        self,
        src: Int[Tensor, "batch src_len"],
        tgt_in: Int[Tensor, "batch tgt_len"],
        src_mask: Bool[Tensor, "batch src_len"],
    ) -> Float[Tensor, "batch tgt_len d_model"]:
        """Hidden states with teacher forcing."""
        return self.decode(tgt_in, self.encode(src, src_mask), src_mask)

    def forward(
        self,
        src: Int[Tensor, "batch src_len"],
        tgt_in: Int[Tensor, "batch tgt_len"],
        src_mask: Bool[Tensor, "batch src_len"],
    ) -> Float[Tensor, "batch tgt_len vocab"]:
        """Logits of the token after each of `tgt_in`."""
        return self.logits(self.states(src, tgt_in, src_mask))

"""Section 3.1: sub-layers, encoder and decoder layers, and their variants in other families."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.core.attention import MultiHeadAttention
from headwise.core.cache import DecoderCache, LayerCache, TextCache
from headwise.core.dropout import Dropout
from headwise.core.masks import Causal, Everywhere, LayerMask, Mask, Packing, over_keys

# Variants of layer normalisation (section 3.1 uses nn.LayerNorm).


class RMSNorm(nn.Module):
    """w * x / sqrt(mean(x^2) + eps): layer normalisation without mean and bias (arXiv:1910.07467)."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*any width"]) -> Float[Tensor, "*any width"]:
        """Same shape in and out."""
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class ShiftedRMSNorm(RMSNorm):
    """(1 + w) * x / sqrt(mean(x^2) + eps), as in Gemma, so that weight decay pulls towards the identity.

    Computed in float32: in half precision, adding 1 would lose the low bits of w.
    """

    def forward(self, x: Float[Tensor, "*any width"]) -> Float[Tensor, "*any width"]:
        """Same shape in and out."""
        return F.rms_norm(x.float(), self.weight.shape, 1.0 + self.weight.float(), self.eps).to(x.dtype)


# Section 3.3: the position-wise feed-forward network, and the gated variant.

Activation = Callable[[Tensor], Tensor]


def relu(x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """max(0, x); in place without gradients (with them torch would copy, since x is a view of a matrix product)."""
    return F.relu(x, inplace=not torch.is_grad_enabled())


def gelu_tanh(x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """The approximation of x Phi(x) that GPT-2 was trained with (arXiv:1606.08415, section 2)."""
    return F.gelu(x, approximate="tanh")


def quick_gelu(x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """x sigmoid(1.702 x), the cheaper approximation of the same section."""
    return x * torch.sigmoid(1.702 * x)


ACTIVATIONS: dict[str, Activation] = {
    "relu": relu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "quick_gelu": quick_gelu,
    "silu": F.silu,
    "tanh": torch.tanh,
}


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 (equation 2), or with another activation."""

    def __init__(self, d_model: int, d_ff: int, activation: Activation = relu, bias: bool = True) -> None:
        super().__init__()
        self.up_proj = nn.Linear(d_model, d_ff, bias)
        self.down_proj = nn.Linear(d_ff, d_model, bias)
        self.activation = activation

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        """Same shape in and out."""
        return self.down_proj(self.activation(self.up_proj(x)))


class GatedFeedForward(nn.Module):
    """FFN(x) = (act(x W_g) * x W_1) W_2: "GEGLU" with GELU, "SwiGLU" with SiLU (arXiv:2002.05202)."""

    def __init__(self, d_model: int, d_ff: int, activation: Activation, bias: bool) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(d_model, d_ff, bias)
        self.up_proj = nn.Linear(d_model, d_ff, bias)
        self.down_proj = nn.Linear(d_ff, d_model, bias)
        self.activation = activation

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        """Same shape in and out."""
        return self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))


class Sublayer(nn.Module):
    """Residual connection, dropout and layer normalisation around a function f.

    post-norm (the paper, 5.4): norm(x + dropout(f(x))). pre-norm: x + dropout(f(norm(x))).
    """

    def __init__(self, norm: nn.Module, dropout: float, norm_first: bool) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)
        self.norm_first = norm_first

    def forward(
        self, x: Float[Tensor, "batch length d_model"], function: Callable[..., Tensor], *arguments: object
    ) -> Float[Tensor, "batch length d_model"]:
        """Same shape in and out; f is called with `arguments` after its input."""
        if self.norm_first:
            return self.dropout(function(self.norm(x), *arguments), residual=x)
        return self.norm(self.dropout(function(x, *arguments), residual=x))


class SandwichSublayer(Sublayer):
    """x + norm_after(f(norm(x))): norms before and after the function (Gemma 2, arXiv:2408.00118)."""

    def __init__(self, norm: nn.Module, norm_after: nn.Module, dropout: float) -> None:
        super().__init__(norm, dropout, norm_first=True)
        self.norm_after = norm_after

    def forward(
        self, x: Float[Tensor, "batch length d_model"], function: Callable[..., Tensor], *arguments: object
    ) -> Float[Tensor, "batch length d_model"]:
        """See `Sublayer.forward`."""
        return self.dropout(self.norm_after(function(self.norm(x), *arguments)), residual=x)


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network, each in a `Sublayer`."""

    def __init__(
        self,
        self_attn: MultiHeadAttention,
        ffn: FeedForward | GatedFeedForward,
        self_attn_sublayer: Sublayer,
        ffn_sublayer: Sublayer,
    ) -> None:
        super().__init__()
        self.self_attn = self_attn
        self.ffn = ffn
        self.self_attn_sublayer = self_attn_sublayer
        self.ffn_sublayer = ffn_sublayer

    def forward(
        self, x: Float[Tensor, "batch length d_model"], mask: LayerMask, cache: LayerCache | None = None
    ) -> Float[Tensor, "batch length d_model"]:
        """`mask` is True where a position may attend. With a cache, `x` holds the new positions only."""
        x = self.self_attn_sublayer(x, self.self_attn, None, mask, cache)
        return self.ffn_sublayer(x, self.ffn)


class DecoderLayer(nn.Module):
    """Masked self-attention, attention over the encoder's output, then the feed-forward network."""

    def __init__(
        self,
        self_attn: MultiHeadAttention,
        cross_attn: MultiHeadAttention,
        ffn: FeedForward | GatedFeedForward,
        self_attn_sublayer: Sublayer,
        cross_attn_sublayer: Sublayer,
        ffn_sublayer: Sublayer,
    ) -> None:
        super().__init__()
        self.self_attn = self_attn
        self.cross_attn = cross_attn
        self.ffn = ffn
        self.self_attn_sublayer = self_attn_sublayer
        self.cross_attn_sublayer = cross_attn_sublayer
        self.ffn_sublayer = ffn_sublayer

    def forward(
        self,
        x: Float[Tensor, "batch tgt_len d_model"],
        memory: Float[Tensor, "batch src_len d_memory"],
        tgt_mask: Mask | Packing,
        src_mask: Bool[Tensor, "#batch 1 1 src_len"] | Packing | None,
        self_cache: LayerCache | None = None,
        cross_cache: LayerCache | None = None,
    ) -> Float[Tensor, "batch tgt_len d_model"]:
        """With caches, `x` holds the new positions only."""
        x = self.self_attn_sublayer(x, self.self_attn, None, tgt_mask, self_cache)
        x = self.cross_attn_sublayer(x, self.cross_attn, memory, src_mask, cross_cache)
        return self.ffn_sublayer(x, self.ffn)


class ParallelLayer(nn.Module):
    """Parallel attention and feed-forward network: x + attention(norm_1(x)) + FFN(norm_2(x)).

    GPT-NeoX (arXiv:2204.06745, section 2.1) has two norms; PaLM (arXiv:2204.02311, section 2) uses the same one twice.
    """

    def __init__(
        self, self_attn: MultiHeadAttention, ffn: nn.Module, self_attn_sublayer: Sublayer, ffn_sublayer: Sublayer
    ) -> None:
        super().__init__()
        self.self_attn = self_attn
        self.ffn = ffn
        self.self_attn_sublayer = self_attn_sublayer  # only the norms of both are used
        self.ffn_sublayer = ffn_sublayer

    def forward(
        self, x: Float[Tensor, "batch length d_model"], mask: Mask, cache: LayerCache | None = None
    ) -> Float[Tensor, "batch length d_model"]:
        """See `EncoderLayer.forward`."""
        h = self.self_attn_sublayer.norm(x)
        return x + self.self_attn(h, None, mask, cache) + self.ffn(self.ffn_sublayer.norm(x))


# Section 3.1: the stacks of N layers.


class Encoder(nn.Module):
    """N encoder layers; a final norm follows pre-norm layers, whose sum would otherwise be unbounded."""

    def __init__(self, layers: Sequence[EncoderLayer], norm: nn.Module | None, reach: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm or nn.Identity()
        self.reach = reach or Everywhere()

    def forward(
        self, x: Float[Tensor, "batch length d_model"], mask: Bool[Tensor, "batch length"] | Packing | None
    ) -> Float[Tensor, "batch length d_model"]:
        """`mask` is True on real tokens; None = all."""
        visible = self.reach(mask, 0, x.size(1), x.device)
        for layer in self.layers:
            x = layer(x, visible)
        return self.norm(x)


class ProjectedEncoder(Encoder):
    """W norm(x) + b: an encoder with its output projected to the decoder's width (vision-encoder-decoder)."""

    def __init__(self, plain: Encoder, project: nn.Linear) -> None:
        super().__init__([*plain.layers], plain.norm, plain.reach)  # pyright: ignore[reportArgumentType] its layers
        self.project = project

    def forward(
        self, x: Float[Tensor, "batch length d_model"], mask: Bool[Tensor, "batch length"] | Packing | None
    ) -> Float[Tensor, "batch length width"]:
        """See `Encoder.forward`."""
        return self.project(super().forward(x, mask))


class Decoder(nn.Module):
    """N decoder layers, with a final norm as in `Encoder`."""

    def __init__(self, layers: Sequence[DecoderLayer], norm: nn.Module | None, reach: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm or nn.Identity()
        self.reach = reach or Causal()

    def forward(
        self,
        x: Float[Tensor, "batch tgt_len d_model"],
        memory: Float[Tensor, "batch src_len d_memory"],
        src_mask: Bool[Tensor, "batch src_len"] | Packing | None,
        cache: DecoderCache | None = None,
    ) -> Float[Tensor, "batch tgt_len d_model"]:
        """With a cache, `x` holds the new positions only; they are added to the cache."""
        seen = cache.start_position if cache else 0
        new = x.size(1)
        tgt_mask = self.reach(src_mask if isinstance(src_mask, Packing) else None, seen, new, x.device)
        for i, layer in enumerate(self.layers):
            caches = (cache.self_attn[i], cache.cross_attn[i]) if cache else (None, None)
            x = layer(x, memory, tgt_mask, over_keys(src_mask), *caches)
        if cache and not cache.position:
            cache.length += new
        return self.norm(x)


class CausalStack(nn.Module):
    """The decoder of GPT: N layers without cross-attention, and a final norm."""

    def __init__(self, layers: Sequence[nn.Module], norm: nn.Module | None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm or nn.Identity()
        self.reach = Causal()

    def forward(
        self,
        x: Float[Tensor, "batch new d_model"],
        mask: Bool[Tensor, "batch positions"] | None,
        cache: TextCache | None = None,
    ) -> Float[Tensor, "batch new d_model"]:
        """`mask` is True on real tokens, new and cached ones. With a cache, `x` holds the new positions only."""
        seen, new = cache.start_position if cache else 0, x.size(1)
        visible = self.reach(mask, seen, new, x.device)
        for i, layer in enumerate(self.layers):
            x = layer(x, visible, cache.self_attn[i] if cache else None)
        if cache and not cache.position:
            cache.length += new
        return self.norm(x)

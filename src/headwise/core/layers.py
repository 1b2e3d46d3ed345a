"""Section 3.1: sub-layers, encoder and decoder layers, and their variants in other families."""

from collections.abc import Callable

from jaxtyping import Bool, Float
from torch import Tensor, nn

from headwise.core.attention import MultiHeadAttention
from headwise.core.cache import LayerCache
from headwise.core.dropout import Dropout
from headwise.core.feed_forward import FeedForward, GatedFeedForward
from headwise.core.masks import LayerMask, Mask, Packing


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

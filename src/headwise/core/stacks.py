"""Section 3.1: the stacks of N layers."""

from collections.abc import Sequence

from jaxtyping import Bool, Float
from torch import Tensor, nn

from headwise.core.cache import DecoderCache, TextCache
from headwise.core.layers import DecoderLayer, EncoderLayer
from headwise.core.masks import Causal, Everywhere, Packing, over_keys


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

"""Section 3.1: the stacks of N layers."""

from collections.abc import Sequence

from jaxtyping import Bool, Float
from torch import Tensor, nn

from sightline.model.cache import DecoderCache
from sightline.model.layers import DecoderLayer, EncoderLayer
from sightline.model.masks import causal_mask


class Encoder(nn.Module):
    """N encoder layers; a final norm only where layers normalise first, for otherwise nothing would bound the sum."""

    def __init__(self, layers: Sequence[EncoderLayer], norm: nn.Module | None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm or nn.Identity()

    def forward(
        self, x: Float[Tensor, "batch length d_model"], mask: Bool[Tensor, "batch length"]
    ) -> Float[Tensor, "batch length d_model"]:
        """`mask` is True on real tokens."""
        for layer in self.layers:
            x = layer(x, mask[:, None, None, :])
        return self.norm(x)


class Decoder(nn.Module):
    """N decoder layers; the final norm as in `Encoder`."""

    def __init__(self, layers: Sequence[DecoderLayer], norm: nn.Module | None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm or nn.Identity()

    def forward(
        self,
        x: Float[Tensor, "batch tgt_len d_model"],
        memory: Float[Tensor, "batch src_len d_model"],
        src_mask: Bool[Tensor, "batch src_len"],
        cache: DecoderCache | None = None,
    ) -> Float[Tensor, "batch tgt_len d_model"]:
        """With a cache `x` holds the new positions only, and the cache is advanced by them."""
        seen = cache.length if cache else 0
        new = x.size(1)
        # A single new position may attend to everything before it: no mask, and the fastest kernel.
        tgt_mask = causal_mask(new, seen + new, x.device)[None, None] if new > 1 else None
        for i, layer in enumerate(self.layers):
            caches = (cache.self_attn[i], cache.cross_attn[i]) if cache else (None, None)
            x = layer(x, memory, tgt_mask, src_mask[:, None, None, :], *caches)
        if cache:
            cache.length += new
        return self.norm(x)

"""Section 3.1 as the families vary it: another place for the norms, sub-layers side by side, stacks of two widths."""

from collections.abc import Callable

from jaxtyping import Bool, Float
from torch import Tensor, nn

from headwise.network.attention import MultiHeadAttention
from headwise.network.cache import LayerCache
from headwise.network.layers import Sublayer
from headwise.network.masks import Mask, Packing
from headwise.network.stacks import Encoder


class SandwichSublayer(Sublayer):
    """x + norm_after(f(norm(x))): a norm on either side of the function (Gemma 2, arXiv:2408.00118)."""

    def __init__(self, norm: nn.Module, norm_after: nn.Module, dropout: float) -> None:
        super().__init__(norm, dropout, norm_first=True)
        self.norm_after = norm_after

    def forward(
        self, x: Float[Tensor, "batch length d_model"], function: Callable[..., Tensor], *arguments: object
    ) -> Float[Tensor, "batch length d_model"]:
        """As `Sublayer.forward`."""
        return self.dropout(self.norm_after(function(self.norm(x), *arguments)), residual=x)


class ParallelLayer(nn.Module):
    """x + attention(norm_1(x)) + FFN(norm_2(x)): neither sub-layer waits for the other.

    GPT-NeoX (arXiv:2204.06745, section 2.1) has two norms; PaLM (arXiv:2204.02311, section 2) one, which is then given
    twice.
    """

    def __init__(
        self, self_attn: MultiHeadAttention, ffn: nn.Module, self_attn_sublayer: Sublayer, ffn_sublayer: Sublayer
    ) -> None:
        super().__init__()
        self.self_attn = self_attn
        self.ffn = ffn
        self.self_attn_sublayer = self_attn_sublayer  # of both only the norms are used
        self.ffn_sublayer = ffn_sublayer

    def forward(
        self, x: Float[Tensor, "batch length d_model"], mask: Mask, cache: LayerCache | None = None
    ) -> Float[Tensor, "batch length d_model"]:
        """As `EncoderLayer.forward`."""
        h = self.self_attn_sublayer.norm(x)
        return x + self.self_attn(h, None, mask, cache) + self.ffn(self.ffn_sublayer.norm(x))


class ProjectedEncoder(Encoder):
    """W norm(x) + b: an encoder whose output has the width of the decoder that reads it (vision-encoder-decoder)."""

    def __init__(self, plain: Encoder, project: nn.Linear) -> None:
        super().__init__([*plain.layers], plain.norm, plain.reach)  # pyright: ignore[reportArgumentType] its layers
        self.project = project

    def forward(
        self, x: Float[Tensor, "batch length d_model"], mask: Bool[Tensor, "batch length"] | Packing | None
    ) -> Float[Tensor, "batch length width"]:
        """As `Encoder.forward`, of another width."""
        return self.project(super().forward(x, mask))

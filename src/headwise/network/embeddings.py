"""Section 3.4: token embeddings, scaled by sqrt(d_model), plus positions."""

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headwise.network.dropout import Dropout
from headwise.network.masks import Packing
from headwise.network.positions import Numbering, PositionIds, numbered_in_order


class Embeddings(nn.Module):
    """dropout(E[token] * scale + PE[position]) (sections 3.4, 3.5, 5.4); the paper's scale is sqrt(d_model).

    The table `tokens` may be the very module another `Embeddings` or the output projection uses.

    Args:
        positions: gives the codes of positions; `positions.NoPositions` where they enter elsewhere.
        norm: of the sum (BERT, BART); None = none.
        project: to the width of the layers, where that of the table is another (ELECTRA); None = none.
        numbering: which positions tokens have; fairseq's models do not count padding.
    """

    def __init__(
        self,
        tokens: nn.Embedding,
        positions: nn.Module,
        scale: float,
        dropout: float = 0.0,
        norm: nn.Module | None = None,
        project: nn.Module | None = None,
        numbering: Numbering = numbered_in_order,
    ) -> None:
        super().__init__()
        self.tokens = tokens
        self.positions = positions
        self.scale = scale
        self.norm = norm or nn.Identity()
        self.project = project or nn.Identity()
        self.numbering = numbering
        self.dropout = Dropout(dropout)

    def forward(
        self, tokens: Int[Tensor, "rows length"], start: int | PositionIds | Packing = 0
    ) -> Float[Tensor, "rows length d_model"]:
        """Vectors of `tokens`, which have the positions from `start` on, or those that `start` holds."""
        return self.finish(self.sum(tokens, *self.numbered(tokens, start)))

    def numbered(
        self, tokens: Int[Tensor, "rows length"], start: int | PositionIds | Packing
    ) -> tuple[PositionIds, int]:
        """Position ids of `tokens`, and an upper bound of them."""
        if isinstance(start, Packing):  # without padding, all numberings are the same
            return numbered_in_order(tokens, start.positions[None])
        return self.numbering(tokens, start)

    def sum(
        self, tokens: Int[Tensor, "rows length"], position_ids: PositionIds, end: int
    ) -> Float[Tensor, "rows length width"]:
        """The embeddings added up, in the numbers of the table: computed positions are float32."""
        x = self.tokens(tokens) * self.scale
        return (x + self.positions(position_ids, end)).to(x.dtype)

    def finish(self, x: Float[Tensor, "rows length width"]) -> Float[Tensor, "rows length d_model"]:
        """From the sum to what the first layer reads."""
        return self.project(self.dropout(self.norm(x)))

    def real(self, mask: Bool[Tensor, "rows length"] | Packing | None) -> Bool[Tensor, "rows length"] | Packing | None:
        """The mask of the output, given that of the input."""
        return mask


class TypedEmbeddings(Embeddings):
    """`Embeddings` with one more table in the sum: which of two texts a token belongs to (BERT's segments)."""

    def __init__(self, types: nn.Embedding, tokens: nn.Embedding, positions: nn.Module, scale: float, **parts: object):
        super().__init__(tokens, positions, scale, **parts)  # pyright: ignore[reportArgumentType] its arguments
        self.types = types

    def forward(
        self,
        tokens: Int[Tensor, "rows length"],
        start: int | PositionIds | Packing = 0,
        types: Int[Tensor, "rows length"] | None = None,
    ) -> Float[Tensor, "rows length d_model"]:
        """As `Embeddings.forward`; None = every token is of type 0."""
        added = self.types.weight[0] if types is None else self.types(types)
        return self.finish(self.sum(tokens, *self.numbered(tokens, start)) + added)

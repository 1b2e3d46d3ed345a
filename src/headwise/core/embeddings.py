"""Section 3.4: token embeddings, scaled by sqrt(d_model), plus positions."""

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headwise.core.cache import StepPosition
from headwise.core.dropout import Dropout
from headwise.core.masks import Packing
from headwise.core.positions import PositionIds, PositionNumbering, sequential_positions


class Embeddings(nn.Module):
    """dropout(E[token] * scale + PE[position]) (sections 3.4, 3.5, 5.4); the paper's scale is sqrt(d_model).

    The table `tokens` may be shared with another `Embeddings` or tied to the output projection.

    Args:
        positions: position embeddings; `positions.NoPositions` if positions enter elsewhere.
        norm: normalises the sum (BERT, BART).
        project: projects to the width of the layers (ELECTRA).
        numbering: position ids of tokens; fairseq's models do not count padding.
    """

    def __init__(
        self,
        tokens: nn.Embedding,
        positions: nn.Module,
        scale: float,
        dropout: float = 0.0,
        norm: nn.Module | None = None,
        project: nn.Module | None = None,
        numbering: PositionNumbering = sequential_positions,
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
        self, tokens: Int[Tensor, "rows length"], start: int | PositionIds | StepPosition | Packing = 0
    ) -> Float[Tensor, "rows length d_model"]:
        """Embeddings of `tokens`; `start` is the position of the first token, or the positions of all."""
        return self.finish(self.sum(tokens, *self.numbered(tokens, start)))

    def numbered(
        self, tokens: Int[Tensor, "rows length"], start: int | PositionIds | StepPosition | Packing
    ) -> tuple[PositionIds, int]:
        """Position ids of `tokens`, and an upper bound of them."""
        if isinstance(start, Packing):  # no padding, so all numberings agree
            return start.queries.positions[None], start.queries.longest
        return self.numbering(tokens, start)

    def sum(
        self, tokens: Int[Tensor, "rows length"], position_ids: PositionIds, end: int
    ) -> Float[Tensor, "rows length width"]:
        """The sum of the embeddings in the dtype of the table (computed positions are float32)."""
        x = self.tokens(tokens) * self.scale
        return (x + self.positions(position_ids, end)).to(x.dtype)

    def finish(self, x: Float[Tensor, "rows length width"]) -> Float[Tensor, "rows length d_model"]:
        """Norm, dropout and projection of the sum: the input of the first layer."""
        return self.project(self.dropout(self.norm(x)))

    def real(self, mask: Bool[Tensor, "rows length"] | Packing | None) -> Bool[Tensor, "rows length"] | Packing | None:
        """The mask of the output for a mask of the input."""
        return mask


class TypedEmbeddings(Embeddings):
    """`Embeddings` plus token type embeddings (BERT's segments)."""

    def __init__(self, types: nn.Embedding, tokens: nn.Embedding, positions: nn.Module, scale: float, **parts: object):
        super().__init__(tokens, positions, scale, **parts)  # pyright: ignore[reportArgumentType] its arguments
        self.types = types

    def forward(
        self,
        tokens: Int[Tensor, "rows length"],
        start: int | PositionIds | StepPosition | Packing = 0,
        types: Int[Tensor, "rows length"] | None = None,
    ) -> Float[Tensor, "rows length d_model"]:
        """See `Embeddings.forward`; without `types` every token has type 0."""
        added = self.types.weight[0] if types is None else self.types(types)
        return self.finish(self.sum(tokens, *self.numbered(tokens, start)) + added)

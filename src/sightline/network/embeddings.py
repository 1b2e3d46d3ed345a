"""Section 3.4: token embeddings, scaled by sqrt(d_model), plus positions; for numbers a projection in their place."""

import math

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sightline.network.dropout import Dropout
from sightline.network.positions import LearnedPositions, SinusoidalPositions


class Embeddings(nn.Module):
    """dropout(E[token] * sqrt(d_model) + PE[position]) (sections 3.4, 3.5, 5.4).

    The table `tokens` may be the very module another `Embeddings` or the output projection uses.
    """

    def __init__(self, tokens: nn.Embedding, positions: SinusoidalPositions | LearnedPositions, dropout: float) -> None:
        super().__init__()
        self.tokens = tokens
        self.positions = positions
        self.dropout = Dropout(dropout)
        self.scale = math.sqrt(tokens.embedding_dim)

    def forward(self, tokens: Int[Tensor, "batch length"], start: int = 0) -> Float[Tensor, "batch length d_model"]:
        """Vectors of `tokens`, the first of which stands at position `start`."""
        embedded = self.tokens(tokens) * self.scale
        return self.dropout(embedded + self.positions(start, tokens.size(1)))

    def packed(
        self, tokens: Int[Tensor, "batch length"], mask: Bool[Tensor, "batch length"]
    ) -> Float[Tensor, "1 rows d_model"]:
        """The same of the tokens that `mask` is True for, one below the other."""
        position = mask.nonzero()[:, 1]
        embedded = self.tokens(tokens[mask]) * self.scale
        return self.dropout(embedded + self.positions(0, tokens.size(1))[position])[None]


class SeriesEmbeddings(nn.Module):
    """dropout(W x + b + PE[position]) for a series of vectors x; without positions where an encoder reads in order."""

    def __init__(
        self, n_columns: int, d_model: int, positions: SinusoidalPositions | LearnedPositions | None, dropout: float
    ) -> None:
        super().__init__()
        self.proj = nn.Linear(n_columns, d_model)
        self.positions = positions
        self.dropout = Dropout(dropout)

    def forward(self, values: Float[Tensor, "batch length columns"]) -> Float[Tensor, "batch length d_model"]:
        """One vector for each step of the series."""
        x = self.proj(values)
        return self.dropout(x if self.positions is None else x + self.positions(0, values.size(1)))

"""Section 3.4: token embeddings, scaled by sqrt(d_model), plus positions."""

import math

from jaxtyping import Float, Int
from torch import Tensor, nn

from sightline.model.dropout import Dropout
from sightline.model.positions import LearnedPositions, SinusoidalPositions


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

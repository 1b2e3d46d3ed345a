"""Section 3.4: table, scale, positions."""

import math

import pytest
import torch
from torch import nn

from headwise.core.embeddings import Embeddings
from headwise.core.positions import LearnedPositions, SinusoidalPositions, sinusoids

TOKENS = torch.tensor([[3, 1, 4], [1, 5, 0]])


@pytest.mark.parametrize("d_model", [4, 10])
def test_embeddings_are_scaled_by_the_root_of_their_width(d_model: int) -> None:
    table = nn.Embedding(7, d_model)
    embeddings = Embeddings(table, SinusoidalPositions(d_model), math.sqrt(d_model))
    expected = table.weight[TOKENS] * math.sqrt(d_model) + sinusoids(3, d_model)
    torch.testing.assert_close(embeddings(TOKENS), expected)


def test_positions_count_from_start() -> None:
    embeddings = Embeddings(nn.Embedding(7, 4), LearnedPositions(4, 8), 2.0)
    assert torch.equal(embeddings(TOKENS[:, 1:], start=1), embeddings(TOKENS)[:, 1:])
    assert not torch.equal(embeddings(TOKENS[:, 1:]), embeddings(TOKENS)[:, 1:])


def test_sum_of_embedding_and_position_is_dropped_together() -> None:
    """Section 5.4: one mask on the sum, so a component is either gone or twice itself at p = 0.5."""
    embeddings = Embeddings(nn.Embedding(7, 64), SinusoidalPositions(64), 8.0, dropout=0.5)
    dropped, kept = embeddings(TOKENS), embeddings.eval()(TOKENS)
    assert torch.equal(dropped, torch.where(dropped == 0, 0.0, 2 * kept))
    assert 0.3 < (dropped == 0).float().mean() < 0.7

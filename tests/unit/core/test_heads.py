"""Pooling: padding has no influence, and every kind reads the right states."""

from typing import Any

import pytest
import torch
from torch import Tensor

from headwise.config.model import MODELS
from headwise.core.extensions.pooled import final_states, first_state, last_state, mean_state
from headwise.pytorch.architectures.registry import build_pooled_network

STATES = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]], [[5.0, 6.0], [7.0, 8.0], [0.0, 1.0]]])
MASK = torch.tensor([[True, True, False], [True, True, True]])
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "transformer": {"n_heads": 2, "d_ff": 16, "norm_position": "pre"},
    "lstm": {"architecture": "recurrent", "cell": "lstm"},
    "gru, one direction": {"architecture": "recurrent", "bidirectional": False},
    "conv": {"architecture": "conv", "positions": "learned", "max_len": 16},
}


def test_states_that_each_pooling_reads() -> None:
    assert mean_state(STATES, MASK).tolist() == [[2, 3], [4, 5]]
    assert first_state(STATES, MASK).tolist() == [[1, 2], [5, 6]]
    assert last_state(STATES, MASK).tolist() == [[3, 4], [0, 1]]
    assert final_states(STATES, MASK).tolist() == [[3, 2], [0, 6]]  # forwards at the end, backwards at the start


def network(which: str, pooling: str, **more: Any) -> Any:
    shape = {"d_model": 8, "n_encoder_layers": 2, "dropout": 0.3, "pooling": pooling, "n_outputs": 3, **more}
    values = {"task": "classify", "vocab_size": 12, **ARCHITECTURES[which], **shape}
    return build_pooled_network(MODELS[values.get("architecture", "transformer")](**values)).eval()


@pytest.mark.parametrize("pooling", ["mean", "first", "last"])
@pytest.mark.parametrize("which", ARCHITECTURES)
def test_padding_changes_nothing(which: str, pooling: str) -> None:
    model = network(which, pooling)
    tokens = torch.randint(1, 12, (2, 7))
    alone = model(tokens[:, :4], torch.ones(2, 4, dtype=torch.bool))
    padded = model(tokens, torch.arange(7) < torch.tensor([[4], [7]]))
    torch.testing.assert_close(padded[0], alone[0])
    if pooling != "first":  # which may not see that far
        assert not torch.allclose(padded[1], alone[1])  # real positions do matter


def test_final_states_match_torch() -> None:
    model = network("lstm", "last")
    tokens = torch.randint(1, 12, (3, 6))
    mask = torch.arange(6) < torch.tensor([[6], [2], [4]])
    _, final = model.encoder(model.embeddings(tokens), mask)
    h = final[0]  # (layers x directions, batch, d_model)
    torch.testing.assert_close(model(tokens, mask), model.output(torch.cat([h[-2], h[-1]], -1)))


@pytest.mark.parametrize("which", ARCHITECTURES)
def test_series_input(which: str) -> None:
    model = network(which, "last", n_inputs=5, n_outputs=4)
    found: Tensor = model(torch.randn(2, 6, 5), torch.ones(2, 6, dtype=torch.bool))
    assert found.shape == (2, 4)
    found.sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_the_projection_starts_from_the_whole_input() -> None:
    """Each column of a series has its own weights."""
    model = network("transformer", "mean", n_inputs=2, n_outputs=1)
    values, mask = torch.randn(1, 3, 2), torch.ones(1, 3, dtype=torch.bool)
    assert not torch.allclose(model(values, mask), model(values.flip(-1), mask))

"""Packed encoders give the same results as padded ones."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from trainable_encoder import trainable_encoder

from headwise.core.attention import MultiHeadAttention
from headwise.core.masks import PackedRows
from headwise.core.transformer import EncoderOnly
from headwise.pytorch.data.labelled import LabelledBatch
from headwise.pytorch.training.extra_dropout import DropoutRates, add_dropout
from headwise.pytorch.training.packed import (
    attend_by_library,
    attention_for_encoder,
    forward_of,
    packed_hidden,
    states_of,
)
from headwise.pytorch.training.trainer import recompute_layers
from headwise.runtime.native.library import training_library

pytestmark = pytest.mark.skipif(training_library() is None, reason="without the compiled library nothing is packed")
IDS = torch.tensor([[2, 7, 8, 9, 3, 0], [2, 7, 3, 0, 0, 0], [2, 5, 6, 7, 8, 3]])
REAL = IDS != 0
ROWS = PackedRows(REAL, int(REAL.sum()))
BATCH = LabelledBatch(IDS, REAL, torch.zeros(3, dtype=torch.int64), ROWS.count)


@pytest.fixture
def network(tmp_path: Path) -> EncoderOnly:
    return trainable_encoder(tmp_path)


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("typed", [False, True])
def test_states_and_gradients_equal_those_with_padding(tmp_path: Path, drops: bool, typed: bool) -> None:
    network = trainable_encoder(tmp_path, drops)
    types = (IDS > 6).long() if typed else None
    weights = torch.randn(3, 6, 32, generator=torch.Generator().manual_seed(1)) * REAL[..., None]
    found = []
    for hidden in (packed_hidden(network, IDS, ROWS, attend_by_library, types), network.encode(IDS, REAL, types)):
        network.zero_grad()
        (hidden * weights).sum().backward()
        found.append([(hidden * REAL[..., None]).detach(), *(p.grad for p in network.encoder.parameters())])
    for packed, padded in zip(*found, strict=True):
        torch.testing.assert_close(packed, padded, atol=1e-5, rtol=2e-5)


@pytest.mark.parametrize("drops", [False, True])
def test_nothing_is_computed_for_padding(tmp_path: Path, drops: bool) -> None:
    network, rows = trainable_encoder(tmp_path, drops), list[int]()
    for module in network.modules():
        if isinstance(module, MultiHeadAttention):
            module.o_proj.register_forward_hook(lambda _, given, __: rows.append(given[0].shape[:-1].numel()))
    forward_of(network)(BATCH)
    assert set(rows) == {int(REAL.sum())}


def test_layers_are_recomputed(network: EncoderOnly) -> None:
    """Recomputed in the backward pass, with the same gradients."""
    calls, found = list[int](), list[list[Tensor | None]]()
    layers: Any = network.encoder.layers
    layers[0].ffn.register_forward_hook(lambda *_: calls.append(1))
    for times in (1, 3):
        network.zero_grad()
        packed_hidden(network, IDS, ROWS, attend_by_library).square().sum().backward()
        found.append([p.grad for p in network.encoder.parameters()])
        assert len(calls) == times
        recompute_layers(network)
    torch.testing.assert_close(*found, rtol=0, atol=0)


def test_a_compiled_encoder_is_padded(network: EncoderOnly, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = list[object]()
    monkeypatch.setattr(torch, "compile", lambda function: compiled.append(function) or function)
    assert torch.equal(states_of(network, compiled=True)(BATCH), network.encode(IDS, REAL))
    assert torch.equal(forward_of(network, compiled=True)(BATCH), network(IDS, REAL))
    assert compiled == [network.encode, network]


def test_layers_that_may_be_skipped_are_not_packed(network: EncoderOnly) -> None:
    assert attention_for_encoder(network, REAL)
    add_dropout(network, DropoutRates(encoder_layer=0.5))
    assert not attention_for_encoder(network, REAL)

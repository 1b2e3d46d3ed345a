"""Activation checkpointing: the same gradients with less memory."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from headwise.config.model import TransformerConfig
from headwise.core.masks import PackedRows
from headwise.pytorch.architectures.transformer import build_model
from headwise.pytorch.training.packed import attention_for, packed_states
from headwise.pytorch.training.trainer import recompute_layers
from headwise.runtime.native.library import training_library

SHAPE = TransformerConfig(
    vocab_size=11, d_model=16, d_ff=32, n_heads=2, n_encoder_layers=3, n_decoder_layers=3, dropout=0.3
)
SRC, TGT_IN = torch.randint(4, 11, (4, 6)), torch.randint(4, 11, (4, 5))
SRC_MASK = torch.ones_like(SRC, dtype=torch.bool)
TGT_MASK = torch.ones_like(TGT_IN, dtype=torch.bool)
needs_library = pytest.mark.skipif(training_library() is None, reason="needs the compiled library")


def networks(norm_position: str = "post") -> tuple[nn.Module, nn.Module]:
    """The same model twice; the second recomputes."""
    plain, sparing = (build_model(replace(SHAPE, norm_position=norm_position)).train() for _ in range(2))
    sparing.load_state_dict(plain.state_dict())
    recompute_layers(sparing)
    return plain, sparing


def padded(model: Any) -> Tensor:
    return model.states(SRC, TGT_IN, SRC_MASK)


def packed(model: Any) -> Tensor:
    attend = attention_for(model, SRC_MASK, TGT_MASK)
    assert attend
    return packed_states(model, SRC, TGT_IN, *(PackedRows(mask, mask.numel()) for mask in (SRC_MASK, TGT_MASK)), attend)


States = Callable[[Any], Tensor]
WAYS = [padded, pytest.param(packed, marks=needs_library)]


def gradients(model: nn.Module, states: States = padded) -> dict[str, Tensor]:
    torch.manual_seed(3)
    states(model).square().sum().backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def kept_bytes(model: nn.Module, states: States = padded) -> int:
    """Memory of what the forward pass keeps for the backward pass, parameters and shared storage counted once."""
    sizes: dict[int, int] = {}
    kept: list[Tensor] = []  # alive until counted, so that no address is used twice

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        states(model)
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    return sum(size for address, size in sizes.items() if address not in own)


@pytest.mark.parametrize("states", WAYS)
@pytest.mark.parametrize("norm_position", ["post", "pre"])
def test_gradients_are_the_same_bit_for_bit(norm_position: str, states: States) -> None:
    plain, sparing = networks(norm_position)
    expected, expected_state = gradients(plain, states), torch.get_rng_state()
    assert expected.keys() == dict(plain.named_parameters()).keys()
    torch.testing.assert_close(gradients(sparing, states), expected, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), expected_state)  # so a resumed run sees the same random numbers


@pytest.mark.parametrize("states", WAYS)
def test_less_memory_is_kept(states: States) -> None:
    plain, sparing = networks()
    assert kept_bytes(sparing, states) < 0.5 * kept_bytes(plain, states)


def test_without_gradients_nothing_changes() -> None:
    plain, sparing = (network.eval() for network in networks())
    with torch.inference_mode():
        assert torch.equal(sparing.states(SRC, TGT_IN, SRC_MASK), plain.states(SRC, TGT_IN, SRC_MASK))

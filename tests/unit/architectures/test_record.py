"""Recorded attention weights of recurrent and convolutional networks: (batch, 1, target, source) per layer."""

from collections.abc import Callable

import pytest
import torch

from headwise.pytorch.architectures.registry import Network
from headwise.pytorch.inspect.recording import cross_attentions, recording

SRC = torch.tensor([[7, 5, 10, 3, 2], [4, 9, 2, 0, 0]])
SRC_MASK = SRC != 0
TGT_IN = torch.tensor([[1, 8, 8, 4], [1, 3, 6, 0]])
NAMES = {
    "rnn": [],
    "bahdanau": ["decoder.cross_attn"],
    "dot": ["decoder.cross_attn"],
    "luong": ["decoder.cross_attn"],
    "conv": ["decoder.layers.0.cross_attn", "decoder.layers.1.cross_attn"],
}


@pytest.mark.parametrize("variant", NAMES)
def test_weights_are_a_distribution_over_real_tokens(variant: str, build_small: Callable[..., Network]) -> None:
    model = build_small(variant)
    plain = model(SRC, TGT_IN, SRC_MASK)
    with recording(cross_attentions(model)) as weights:
        assert torch.equal(model(SRC, TGT_IN, SRC_MASK), plain)
    assert [*weights] == NAMES[variant]
    for layer in weights.values():
        assert layer.shape == (2, 1, 4, 5)
        assert not layer.requires_grad
        torch.testing.assert_close(layer.sum(-1), torch.ones(2, 1, 4).double())
        assert layer[~SRC_MASK[:, None, None].expand_as(layer)].count_nonzero() == 0
    assert not any(module._forward_hooks for module in model.modules())


def test_weights_explain_what_bahdanaus_decoder_computed(build_small: Callable[..., Network]) -> None:
    """With a cache, the recordings of single steps are the rows of the recording of a whole pass."""
    model = build_small("bahdanau")
    with recording(cross_attentions(model)) as whole:
        model(SRC, TGT_IN, SRC_MASK)
    cache = model.start_cache(model.encode(SRC, SRC_MASK), SRC_MASK)
    for i in range(4):
        with recording(cross_attentions(model)) as step:
            model.decode(TGT_IN[:, i : i + 1], cache.memory, cache.src_mask, cache)
        expected = whole["decoder.cross_attn"][:, :, i : i + 1]
        torch.testing.assert_close(step["decoder.cross_attn"], expected, rtol=0, atol=1e-12)


def test_weights_explain_the_context(build_small: Callable[..., Network]) -> None:
    model, seen = build_small("conv"), []
    attention = model.decoder.layers[1].cross_attn
    handle = attention.register_forward_hook(lambda module, inputs, output: seen.append((inputs[2], output)))
    with recording({"last": attention}) as weights:
        model(SRC, TGT_IN, SRC_MASK)
    handle.remove()
    ((values, output),) = seen
    torch.testing.assert_close(weights["last"].squeeze(1) @ values, output)

"""Attention seen from outside: the right weights, and a model that does not notice."""

import math
from threading import Thread

import pytest
import torch
from torch import Tensor, nn

from headwise.config.model import TransformerConfig
from headwise.core.attention import Capped, DotProduct, MultiHeadAttention, Windowed, merge_heads, split_heads
from headwise.core.cache import LayerCache
from headwise.core.extensions.rotary import Rotary, rotary_rates
from headwise.core.masks import causal_mask
from headwise.core.transformer import Transformer
from headwise.pytorch.architectures.transformer import build_model
from headwise.pytorch.inspect.recording import attentions as attentions_by_stack
from headwise.pytorch.inspect.recording import cross_attentions, outputs, recording

SRC = torch.tensor([[7, 5, 10, 3, 2], [4, 9, 2, 0, 0]])
SRC_MASK = SRC != 0
TGT_IN = torch.tensor([[1, 8, 8, 4], [1, 3, 6, 0]])


@pytest.fixture
def model() -> Transformer:
    shape = {"d_model": 8, "d_ff": 16, "n_heads": 2, "n_encoder_layers": 2, "n_decoder_layers": 2}
    return build_model(TransformerConfig(vocab_size=11, **shape)).eval()


def attentions(model: Transformer) -> dict[str, MultiHeadAttention]:
    return {name: module for name, module in model.named_modules() if isinstance(module, MultiHeadAttention)}


def record(model: Transformer, modules: dict[str, MultiHeadAttention]) -> dict[str, Tensor]:
    with recording(modules) as weights:
        model(SRC, TGT_IN, SRC_MASK)
    return weights


def test_cross_attentions_are_the_decoders_first_layer_first(model: Transformer) -> None:
    layers = model.decoder.layers
    assert [*cross_attentions(model).items()] == [
        ("decoder.layers.0.cross_attn", layers[0].cross_attn),
        ("decoder.layers.1.cross_attn", layers[1].cross_attn),
    ]


def test_weights_are_a_distribution_over_real_tokens(model: Transformer) -> None:
    weights = record(model, cross_attentions(model))
    assert [*weights] == [*cross_attentions(model)]
    for layer in weights.values():
        assert layer.shape == (2, 2, 4, 5)  # sentences, heads, target positions, source positions
        torch.testing.assert_close(layer.sum(-1), torch.ones(2, 2, 4))
        assert layer[~SRC_MASK[:, None, None].expand_as(layer)].count_nonzero() == 0


def test_self_attention_of_the_decoder_is_causal(model: Transformer) -> None:
    weights = record(model, attentions(model))["decoder.layers.1.self_attn"]
    assert weights.triu(1).count_nonzero() == 0
    assert (weights.tril() > 0).sum() == 2 * 2 * (1 + 2 + 3 + 4)


def test_weights_are_those_of_the_projections(model: Transformer) -> None:
    """Layer 0 of the encoder by hand: its input is the embeddings, whatever the rest of the model does."""
    attention = model.encoder.layers[0].self_attn
    x = model.src_embeddings(SRC)
    q, k = (projection(x).view(2, 5, 2, 4).transpose(1, 2) for projection in (attention.q_proj, attention.k_proj))
    scores = (q @ k.mT / math.sqrt(4)).masked_fill(~SRC_MASK[:, None, None], -math.inf)
    weights = record(model, {"first": attention})["first"]
    torch.testing.assert_close(weights, scores.softmax(-1))


def test_weights_explain_the_output_of_the_module(model: Transformer) -> None:
    attention, seen = model.decoder.layers[1].cross_attn, []
    handle = attention.register_forward_hook(lambda module, inputs, output: seen.append((inputs[1], output)))
    weights = record(model, {"last": attention})["last"]
    handle.remove()
    ((memory, output),) = seen
    values = attention.v_proj(memory).view(2, 5, 2, 4).transpose(1, 2)
    mixed = (weights @ values).transpose(1, 2).reshape(2, 4, 8)
    torch.testing.assert_close(attention.o_proj(mixed), output)


@pytest.mark.parametrize("training", [False, True])
def test_output_and_random_state_are_bit_identical(model: Transformer, training: bool) -> None:
    model.train(training)

    def run() -> tuple[Tensor, Tensor]:
        torch.manual_seed(3)
        return model(SRC, TGT_IN, SRC_MASK), torch.get_rng_state()

    plain = run()
    with recording(attentions(model)):
        recorded = run()
    assert all(map(torch.equal, plain, recorded))


def test_recording_leaves_no_hook_and_no_graph_behind(model: Transformer) -> None:
    weights = record(model, attentions(model))
    assert not any(layer.requires_grad for layer in weights.values())
    assert not any(module._forward_hooks for module in model.modules())
    before = {name: layer.clone() for name, layer in weights.items()}
    model(SRC.flip(0), TGT_IN, SRC_MASK.flip(0))
    assert all(torch.equal(weights[name], before[name]) for name in before)


def test_hooks_go_when_the_model_fails(model: Transformer) -> None:
    with pytest.raises(RuntimeError, match="stop"), recording(attentions(model)):
        raise RuntimeError("stop")
    assert not any(module._forward_hooks for module in model.modules())


def test_last_call_of_a_module_is_the_one_kept(model: Transformer) -> None:
    """Step by step with a cache, the cross-attention of the newest position."""
    full = record(model, cross_attentions(model))
    cache = model.start_cache(model.encode(SRC, SRC_MASK), SRC_MASK)
    with recording(cross_attentions(model)) as weights:
        for step in range(4):
            model.decode(TGT_IN[:, step : step + 1], cache.memory, cache.src_mask, cache)
            for name, layer in weights.items():
                torch.testing.assert_close(layer, full[name][:, :, step : step + 1])


KERNELS = {"scaled": DotProduct(0.3), "capped": Windowed(Capped(0.5, 2.0), 2)}


@pytest.mark.parametrize("kernel", KERNELS)
def test_weights_of_what_families_vary(kernel: str) -> None:
    """Fewer heads of keys, turned by position, under any kernel: whole, and position by position with a cache."""
    norms, turn = {"q_norm": nn.LayerNorm(6), "k_norm": nn.LayerNorm(6)}, Rotary(rotary_rates(6, 100.0))
    attention = MultiHeadAttention(8, 4, 6, 6, 2, "", KERNELS[kernel], **norms, rotate=turn)
    x, mask = torch.randn(2, 5, 8), causal_mask(5, 5, torch.device("cpu"))[None, None]
    with recording({"all": attention}) as whole:
        output = attention(x, x, mask)
    weights = whole["all"]
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 5))
    values = split_heads(attention.v_proj(x), attention.n_kv_heads).repeat_interleave(2, 1)
    torch.testing.assert_close(attention.o_proj(merge_heads(weights @ values)), output)
    cache = LayerCache(grows=True)
    for i in range(5):
        with recording({"one": attention}) as step:
            attention(x[:, i : i + 1], x[:, i : i + 1], mask[:, :, i : i + 1, : i + 1], cache)
        torch.testing.assert_close(step["one"], weights[:, :, i : i + 1, : i + 1])


def test_another_thread_is_not_recorded(model: Transformer) -> None:
    expected = record(model, cross_attentions(model))
    with recording(cross_attentions(model)) as weights:
        model(SRC, TGT_IN, SRC_MASK)
        other = Thread(target=lambda: model(SRC.flip(0), TGT_IN, SRC_MASK.flip(0)))
        other.start()
        other.join()
    for name, layer in weights.items():
        assert torch.equal(layer, expected[name])


def test_outputs_are_those_of_the_last_call(model: Transformer) -> None:
    layer = model.decoder.layers[1]
    with outputs({"last": layer}) as seen:
        hidden = model.states(SRC, TGT_IN, SRC_MASK)
    assert torch.equal(seen["last"], hidden)  # post-norm: there is no further norm
    assert not layer._forward_hooks


def test_attentions_by_who_looks_at_what(model: Transformer) -> None:
    found = attentions_by_stack(model)
    assert {stack: [*modules] for stack, modules in found.items()} == {
        "encoder": ["encoder.layers.0.self_attn", "encoder.layers.1.self_attn"],
        "decoder": ["decoder.layers.0.self_attn", "decoder.layers.1.self_attn"],
        "cross": ["decoder.layers.0.cross_attn", "decoder.layers.1.cross_attn"],
    }

"""Building from the configuration of a family: every field has an effect, and every field is tested."""

import json
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise.config.network import NetworkConfig, RotaryConfig, StackConfig, network_config
from headwise.core.build import FamilyNetwork, build, build_empty
from headwise.errors import UserError

STACK = StackConfig(d_model=12, n_layers=2, n_heads=2, d_ff=16, d_head=6)
DECODER = NetworkConfig("test", vocab_size=9, decoder=STACK)
BOTH = NetworkConfig("test", vocab_size=9, encoder=STACK, decoder=STACK)
PICTURE = NetworkConfig(
    "test", encoder=STACK, front="patches", image_size=(4, 6), patch_size=2, n_channels=1, n_prefix=2,
    head="image_class", n_classes=3, n_class_states=1, tie_head=False,
)  # fmt: skip
SOUND = replace(BOTH, front="audio", n_mels=4, encoder=replace(STACK, max_len=5))
TEXT = NetworkConfig("test", vocab_size=9, encoder=STACK, head="masked", n_classes=3)
CLASSES = replace(TEXT, head="text_class", tie_head=False)
ROTARY = RotaryConfig(6)
LEARNED = {"positions": "learned", "max_len": 20}

TOKENS = torch.tensor([[0, 4, 4, 7, 3, 8, 2, 2], [5, 1, 6, 2, 2, 4, 8, 3]])
INPUTS: dict[str, tuple[Tensor, ...]] = {
    "patches": (torch.linspace(-1, 1, 48).view(2, 1, 4, 6),),
    "audio": (torch.linspace(-1, 1, 80).view(2, 4, 10), TOKENS),
}


def fixed(config: NetworkConfig) -> FamilyNetwork:
    """A network with deterministic parameters that do not depend on a generator's state."""
    network = build(config)
    with torch.no_grad():
        for i, parameter in enumerate(network.parameters()):
            values = torch.linspace(0, 40 + i, parameter.numel()).sin()
            parameter.copy_(values.view_as(parameter) * 0.7)
    return network


def run(config: NetworkConfig) -> tuple[list[tuple[int, ...]], Tensor]:
    network = build(config)
    tokens = (TOKENS, TOKENS) if config.encoder and config.decoder else (TOKENS,)
    with torch.no_grad():
        return [tuple(p.shape) for p in network.parameters()], network(*INPUTS.get(config.front, tokens))


def stack(**changes: Any) -> NetworkConfig:
    return replace(DECODER, decoder=replace(STACK, **changes))


# --- Every field changes what is built or computed ---

ROTARY_AXES = [
    (stack(rotary=ROTARY), stack(rotary=replace(ROTARY, **{name: value})))
    for name, value in {"width": 4, "base": 50.0}.items()
] + [
    (stack(rotary=replace(ROTARY, scaling=scaling, factor=2.0)), stack(rotary=replace(ROTARY, **changes)))
    for scaling, changes in (
        ("none", {"scaling": "linear", "factor": 2.0}),
        ("linear", {"scaling": "linear", "factor": 3.0}),
        ("llama3", {"scaling": "llama3", "factor": 2.0, "trained_len": 20}),
        ("llama3", {"scaling": "llama3", "factor": 2.0, "low": 700.0, "high": 900.0}),
        ("llama3", {"scaling": "llama3", "factor": 2.0, "low": 700.0}),
    )
]
STACK_AXES = [
    (stack(**base), stack(**{**base, **changes}))
    for base, changes in (
        ({}, {"d_model": 18, "d_head": 9}),
        ({}, {"n_layers": 3}),
        ({}, {"layer_groups": 1}),
        ({}, {"n_heads": 3}),
        ({}, {"d_ff": 20}),
        ({}, {"d_head": 4}),
        ({}, {"d_v": 4}),
        ({}, {"n_kv_heads": 1}),
        ({}, {"heads": (1, 2)}),
        ({}, {"attention_bias": "qvo"}),
        ({}, {"score_scale": 1.0}),
        ({}, {"score_cap": 0.5}),
        ({}, {"normalise_heads": True}),
        ({}, {"windows": (0, 3)}),
        ({}, {"activation": "silu"}),
        ({}, {"gated": True}),
        ({}, {"ffn_bias": False}),
        ({}, {"norm": "layer_unbiased"}),
        ({}, {"norm": "rms"}),
        ({"norm": "rms"}, {"norm": "rms_shifted"}),
        ({}, {"norm_eps": 0.1}),
        ({}, {"norm_position": "post"}),
        ({}, {"norm_position": "sandwich"}),
        ({}, {"parallel": "two_norms"}),
        ({"parallel": "two_norms"}, {"parallel": "one_norm"}),
        ({}, {"positions": "sinusoidal"}),
        ({"positions": "sinusoidal"}, {"positions": "sinusoidal_tensor2tensor"}),
        ({"positions": "sinusoidal"}, {"positions": "sinusoidal_interleaved"}),
        ({}, LEARNED),
        (LEARNED, {"max_len": 21}),
        (LEARNED, {"position_offset": 2}),
        ({**LEARNED, "position_offset": 3}, {"count_from": 2}),
        ({}, {"rotary": ROTARY}),
        ({}, {"embedding_scale": 3.0}),
        ({}, {"embedding_norm": True}),
        ({}, {"n_types": 2}),
    )
] + [
    (replace(BOTH, encoder=replace(STACK, **base)), replace(BOTH, encoder=replace(STACK, **base, **changes)))
    for base, changes in (
        ({}, {"relative_buckets": 4}),
        ({"relative_buckets": 6}, {"relative_distance": 3}),
        ({"relative_buckets": 6}, {"disentangled": "c2p"}),
        ({"relative_buckets": 6, "disentangled": "c2p"}, {"relative_norm": True}),
    )
] + [
    (TEXT, replace(TEXT, encoder=replace(STACK, d_embedding=5))),
    (TEXT, replace(TEXT, encoder=replace(STACK, first_norm=False))),
    (replace(TEXT, encoder=replace(STACK, rotary=ROTARY, windows=(0, 3))),
     replace(TEXT, encoder=replace(STACK, rotary=ROTARY, windows=(0, 3), window_rotary=replace(ROTARY, base=50.0)))),
    (BOTH, replace(BOTH, decoder=replace(STACK, cross_heads=(2, 1)))),
    (replace(BOTH, encoder=replace(STACK, d_model=18), share_embeddings=False),
     replace(BOTH, encoder=replace(STACK, d_model=18), decoder=replace(STACK, d_memory=18), share_embeddings=False)),
]  # fmt: skip
MODEL_AXES = [
    (DECODER, replace(DECODER, vocab_size=10)),
    (DECODER, replace(DECODER, decoder=None, encoder=STACK)),
    (DECODER, BOTH),
    (BOTH, SOUND),
    (PICTURE, replace(PICTURE, image_size=(6, 4), patch_size=1)),
    (PICTURE, replace(PICTURE, n_prefix=1)),
    (PICTURE, replace(PICTURE, n_classes=4)),
    (PICTURE, replace(PICTURE, n_class_states=2)),
    (PICTURE, replace(PICTURE, n_channels=2)),
    (SOUND, replace(SOUND, n_mels=3)),
    (TEXT, replace(TEXT, head="none", tie_head=False)),
    (TEXT, replace(TEXT, head="token_class", tie_head=False)),
    (TEXT, replace(TEXT, head="text_class", tie_head=False)),
    (TEXT, replace(TEXT, head="replaced", tie_head=False)),
    (TEXT, replace(TEXT, head_activation="relu")),
    (TEXT, replace(TEXT, head_dense_bias=False)),
    (CLASSES, replace(CLASSES, pooling="mean")),
    (CLASSES, replace(CLASSES, head_norm=True)),
    (DECODER, replace(DECODER, head_bias=True)),
    (DECODER, replace(DECODER, tie_head=False)),
    (DECODER, replace(DECODER, logit_scale=0.5)),
    (DECODER, replace(DECODER, logit_cap=0.5)),
    (BOTH, replace(BOTH, share_embeddings=False)),
    (replace(BOTH, share_embeddings=False), replace(BOTH, share_embeddings=False, tgt_vocab_size=10)),
]


def differences(axes: list[tuple[Any, Any]], kind: type, part: str = "") -> set[str]:
    """The fields in which a pair of configurations differs."""
    found = set()
    for pair in axes:
        one, other = ((getattr(c, part) if part else c) for c in pair)
        if kind is RotaryConfig:
            one, other = one.rotary, other.rotary
        if isinstance(one, kind) and isinstance(other, kind):
            found |= {f.name for f in fields(kind) if getattr(one, f.name) != getattr(other, f.name)}
    return found


@pytest.mark.parametrize(("one", "other"), STACK_AXES + MODEL_AXES + ROTARY_AXES)
def test_every_field_changes_the_network(one: NetworkConfig, other: NetworkConfig) -> None:
    if one.n_mels != other.n_mels or one.image_size != other.image_size or one.n_channels != other.n_channels:
        assert [p.shape for p in fixed(one).parameters()] != [p.shape for p in fixed(other).parameters()]
        return
    (shapes, logits), (other_shapes, other_logits) = run(one), run(other)
    same = shapes == other_shapes and logits.shape == other_logits.shape
    assert not (same and torch.allclose(logits, other_logits, atol=1e-6)), "the axis does nothing"


def test_every_field_is_tested() -> None:
    assert differences(ROTARY_AXES, RotaryConfig, "decoder") == {f.name for f in fields(RotaryConfig)}
    tried = differences(STACK_AXES, StackConfig, "decoder") | differences(STACK_AXES, StackConfig, "encoder")
    trained_with = {"dropout"}  # test_build.py
    assert tried == {f.name for f in fields(StackConfig)} - trained_with
    assert differences(MODEL_AXES, NetworkConfig) == {f.name for f in fields(NetworkConfig)} - {"family"}


@pytest.mark.parametrize("config", [BOTH, PICTURE, SOUND, TEXT, stack(rotary=ROTARY, windows=(0, 3))])
def test_a_configuration_survives_json(config: NetworkConfig) -> None:
    assert network_config(json.loads(json.dumps(config.as_dict())), "here") == config


@pytest.mark.parametrize(("changes", "why"), [({"n_layers": 0}, "at least 1"), ({"layer_groups": 4}, "a multiple of")])
def test_a_stack_has_layers_in_groups_of_one_size(changes: dict[str, int], why: str) -> None:
    values = TEXT.as_dict()
    values["encoder"] |= {"n_layers": 6} | changes
    with pytest.raises(UserError, match=f"here: encoder: n_layers = .*{why}"):
        network_config(values, "here")


def test_build_empty_computes_fixed_tables() -> None:
    network = build_empty(stack(rotary=ROTARY, positions="sinusoidal"))
    assert all(parameter.is_meta for parameter in network.parameters())
    assert not any(buffer.is_meta for buffer in network.buffers())


# --- PaLM, which has no public checkpoint ---


def test_palms_block_is_its_formula() -> None:
    """y = x + Attention(LN(x)) + SwiGLU(LN(x)), one head of keys and values (arXiv:2204.02311, section 2)."""
    width = {"d_model": 12, "n_layers": 1, "n_heads": 3, "n_kv_heads": 1, "d_ff": 48, "d_head": 4}
    plain = {"attention_bias": "", "activation": "silu", "gated": True, "ffn_bias": False, "norm": "layer_unbiased"}
    block = StackConfig(**width, **plain, parallel="one_norm", rotary=RotaryConfig(4))
    network = build(NetworkConfig("palm", vocab_size=9, decoder=block, tie_head=True))
    layer: Any = network.decoder.layers[0]
    assert not any(name.endswith("bias") for name, _ in network.named_parameters())
    x = torch.randn(1, 1, 12)  # a single position attends to itself alone, so its value is the output
    h = nn.functional.layer_norm(x, (12,), layer.self_attn_sublayer.norm.weight)
    value = h @ layer.self_attn.v_proj.weight.T
    attended = value.repeat(1, 1, 3) @ layer.self_attn.o_proj.weight.T
    gate = nn.functional.silu(h @ layer.ffn.gate_proj.weight.T)
    gated = (gate * (h @ layer.ffn.up_proj.weight.T)) @ layer.ffn.down_proj.weight.T
    torch.testing.assert_close(layer(x, None), x + attended + gated)


# --- User errors ---


@pytest.mark.parametrize(
    ("config", "inputs", "message"),
    [
        (stack(positions="learned", max_len=4), (TOKENS,), "8 tokens is longer than the model's 4 learned positions"),
        (PICTURE, (torch.zeros(1, 3, 4, 6),), r"\(3, 4, 6\) is not \(1, 4, 6\): resize it"),
        (SOUND, (torch.zeros(1, 4, 12), TOKENS[:1]), "12 frames is longer than the model's 10: cut it"),
    ],
)
def test_inputs_that_do_not_fit(config: NetworkConfig, inputs: tuple[Tensor, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        fixed(config)(*inputs)

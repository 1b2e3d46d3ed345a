"""Building from a recipe's configuration: every field has its effect, and sizes match Table 3."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import nn

from headwise.config.from_recipe import transformer_config
from headwise.config.model import MODELS, TransformerConfig
from headwise.core.attention import MultiHeadAttention
from headwise.core.build import build, count_parameters
from headwise.core.dropout import Dropout
from headwise.core.layers import RMSNorm
from headwise.core.transformer import Transformer
from headwise.pytorch.architectures.transformer import build_model

BASE = TransformerConfig(vocab_size=37_000)  # section 5.1: about 37,000 tokens
BIG: dict[str, Any] = {"d_model": 1024, "d_ff": 4096, "n_heads": 16}


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Number of parameters of the base model with changed fields; memory is not touched, so big models are cheap."""
    for initialise in ("normal_", "kaiming_uniform_", "xavier_uniform_"):
        monkeypatch.setattr(nn.init, initialise, lambda tensor, **_: tensor)
    return lambda **changes: count_parameters(build_model(replace(BASE, **changes)))


# --- Table 3


def attention(d_model: int) -> int:
    """Four projections with biases."""
    return 4 * (d_model * d_model + d_model)


def feed_forward(d_model: int, d_ff: int) -> int:
    return d_model * d_ff + d_ff + d_ff * d_model + d_model


@pytest.mark.parametrize(
    ("changes", "d_model", "d_ff", "total"),
    [({}, 512, 2048, 63_082_496), (BIG, 1024, 4096, 214_245_376)],
    ids=["base", "big"],
)
def test_parameters_of_the_papers_models(
    changes: dict[str, Any], d_model: int, d_ff: int, total: int, count: Callable[..., int]
) -> None:
    """The paper gives 65 and 213 million, but not the exact size of its vocabulary."""
    norm = 2 * d_model
    encoder_layer = attention(d_model) + feed_forward(d_model, d_ff) + 2 * norm
    decoder_layer = 2 * attention(d_model) + feed_forward(d_model, d_ff) + 3 * norm
    assert 37_000 * d_model + 6 * encoder_layer + 6 * decoder_layer == total
    assert count(**changes) == total


@pytest.mark.parametrize(
    ("changes", "millions"),
    [
        ({"n_heads": 1}, 65),
        ({"n_heads": 4}, 65),
        ({"n_heads": 16}, 65),
        ({"n_heads": 32}, 65),
        ({"d_k": 16}, 58),
        ({"d_k": 32}, 60),
        ({"n_encoder_layers": 2, "n_decoder_layers": 2}, 36),
        ({"n_encoder_layers": 4, "n_decoder_layers": 4}, 50),
        ({"n_encoder_layers": 8, "n_decoder_layers": 8}, 80),
        ({"d_model": 256, "d_k": 32, "d_v": 32}, 28),
        ({"d_model": 1024, "d_k": 128, "d_v": 128}, 168),
        ({"d_ff": 1024}, 53),
        ({"d_ff": 4096}, 90),
        (BIG, 213),
    ],
    ids=str,
)
def test_rows_of_table_3_differ_from_base_as_printed(
    changes: dict[str, Any], millions: int, count: Callable[..., int]
) -> None:
    difference = (count(**changes) - count()) / 1e6
    assert difference == pytest.approx(millions - 65, rel=0.03, abs=1.0)


# --- every field

Reader = Callable[[Transformer], Any]

# field: (a change, a property of the built model, its value before, its value after)
FLIPS: dict[str, tuple[dict[str, Any], Reader, Any, Any]] = {
    "vocab_size": ({"vocab_size": 13}, lambda m: m.output.out_features, 11, 13),
    "d_model": ({"d_model": 12}, lambda m: m.src_embeddings.tokens.embedding_dim, 8, 12),
    "d_ff": ({"d_ff": 24}, lambda m: m.decoder.layers[1].ffn.up_proj.out_features, 16, 24),
    "n_heads": ({"n_heads": 4}, lambda m: attention_widths(m), (2, 4, 4), (4, 2, 2)),
    "d_k": ({"d_k": 5}, lambda m: attention_widths(m), (2, 4, 4), (2, 5, 4)),
    "d_v": ({"d_v": 3}, lambda m: attention_widths(m), (2, 4, 4), (2, 4, 3)),
    "n_encoder_layers": ({"n_encoder_layers": 3}, lambda m: n_layers(m), (2, 2), (3, 2)),
    "n_decoder_layers": ({"n_decoder_layers": 1}, lambda m: n_layers(m), (2, 2), (2, 1)),
    "dropout": ({"dropout": 0.25}, lambda m: {d.p for d in m.modules() if isinstance(d, Dropout)}, {0.0}, {0.25}),
    "norm_position": ({"norm_position": "pre"}, lambda m: norms(m), ({False}, 10), ({True}, 12)),
    "norm": ({"norm": "rms"}, lambda m: sum(isinstance(x, RMSNorm) for x in m.modules()), 0, 10),
    "activation": ({"activation": "silu"}, lambda m: m.encoder.layers[0].ffn.activation.__name__, "relu", "silu"),
    "gated": ({"gated": True}, lambda m: hasattr(m.decoder.layers[1].ffn, "gate_proj"), False, True),
    "biases": ({"biases": False}, lambda m: sum("proj.bias" in name for name in m.state_dict()), 32, 0),
    "n_kv_heads": ({"n_kv_heads": 1}, lambda m: {a.n_kv_heads for a in attentions(m)}, {2}, {1}),
    "normalise_heads": ({"normalise_heads": True}, lambda m: sum("q_norm.weight" in x for x in m.state_dict()), 0, 6),
    "positions": ({"positions": "learned"}, lambda m: position_tables(m), [], [(1024, 8), (1024, 8)]),
    "max_len": ({"positions": "learned", "max_len": 6}, lambda m: position_tables(m), [], [(6, 8), (6, 8)]),
    "tied_embeddings": ({"tied_embeddings": "none"}, lambda m: n_vocabulary_tables(m), 1, 3),
}
READ_ELSEWHERE = {
    "image_size",
    "patch_size",
    "architecture",  # tests/unit/test_architectures.py
    *("cell", "attention", "bidirectional", "input_feeding", "reverse_source", "kernel_width"),  # tests/unit/baselines
    *("task", "pooling", "n_inputs", "n_outputs"),  # tests/unit/core/test_heads.py, tests/system/test_tasks.py
    "pad_id",  # the trainer
    *("encoder_heads", "decoder_heads", "cross_heads"),  # tests/unit/test_pruning.py
}


def attentions(model: Transformer) -> list[MultiHeadAttention]:
    return [module for module in model.modules() if isinstance(module, MultiHeadAttention)]


def attention_widths(model: Transformer) -> tuple[int, int, int]:
    """Heads, d_k and d_v, the same in every attention module."""
    (widths,) = {
        (a.n_heads, a.q_proj.out_features // a.n_heads, a.v_proj.out_features // a.n_heads) for a in attentions(model)
    }
    return widths


def n_layers(model: Transformer) -> tuple[int, int]:
    return len(model.encoder.layers), len(model.decoder.layers)


def norms(model: Transformer) -> tuple[set[bool], int]:
    """The order in sub-layers, and the number of norms: pre-norm adds a final one for each stack."""
    modules = [*model.modules()]
    orders = {module.norm_first for module in modules if hasattr(module, "norm_first")}
    return orders, sum(isinstance(module, nn.LayerNorm) for module in modules)


def position_tables(model: Transformer) -> list[tuple[int, ...]]:
    return [tuple(p.shape) for name, p in model.named_parameters() if name.endswith("positions.table.weight")]


def n_vocabulary_tables(model: Transformer) -> int:
    return sum(len(parameter) == 11 for parameter in model.parameters())


@pytest.mark.parametrize("field", FLIPS)
def test_field_changes_the_model(field: str, build_small: Callable[..., Transformer]) -> None:
    changes, read, before, after = FLIPS[field]
    assert read(build_small()) == before
    assert read(build_small(**changes)) == after


def test_every_field_is_flipped() -> None:
    settings = {field.name for config in MODELS.values() for field in fields(config)}
    assert settings == {*FLIPS, *READ_ELSEWHERE}


def test_dropout_is_where_section_5_4_puts_it(build_small: Callable[..., Transformer]) -> None:
    """On the output of each sub-layer and on both sums of embeddings and positions, and nowhere else."""
    names = {name for name, module in build_small(dropout=0.1).named_modules() if isinstance(module, Dropout)}
    encoder = {f"encoder.layers.{i}.{part}_sublayer.dropout" for i in (0, 1) for part in ("self_attn", "ffn")}
    parts = ("self_attn", "cross_attn", "ffn")
    decoder = {f"decoder.layers.{i}.{part}_sublayer.dropout" for i in (0, 1) for part in parts}
    assert names == {"src_embeddings.dropout", "tgt_embeddings.dropout"} | encoder | decoder


@pytest.mark.parametrize(
    ("tied", "source_is_target", "target_is_output"),
    [("all", True, True), ("target", False, True), ("none", False, False)],
)
def test_tied_embeddings(
    tied: str, source_is_target: bool, target_is_output: bool, build_small: Callable[..., Transformer]
) -> None:
    model = build_small(tied_embeddings=tied)
    source, target = model.src_embeddings.tokens.weight, model.tgt_embeddings.tokens.weight
    assert (source is target, target is model.output.weight) == (source_is_target, target_is_output)


# --- initial parameters


def fresh(seed: int, **changes: Any) -> Transformer:
    torch.manual_seed(seed)
    return build_model(TransformerConfig(**{"vocab_size": 1000, "d_model": 64, "d_ff": 128, "n_heads": 4, **changes}))


def test_seed_decides_the_parameters() -> None:
    one, same, other = (dict(fresh(seed).named_parameters()) for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    random = [name for name in one if one[name].dim() == 2]
    assert random and not any(torch.equal(one[name], other[name]) for name in random)


@pytest.mark.parametrize("tied", ["all", "target", "none"])
@pytest.mark.parametrize(
    ("positions", "expected"), [("sinusoidal", 1), ("learned", 1), ("rotary", 0.25), ("relative", 0.25)]
)
def test_embedded_tokens_start_smaller_if_no_positions_are_added(tied: str, positions: str, expected: float) -> None:
    model = fresh(1, tied_embeddings=tied, positions=positions)
    for embeddings in (model.src_embeddings, model.tgt_embeddings):
        assert (embeddings.tokens.weight * embeddings.scale).std().item() == pytest.approx(expected, rel=0.05)


def test_unscaled_embeddings_start_with_the_usual_standard_deviation() -> None:
    torch.manual_seed(1)
    c = transformer_config(TransformerConfig(vocab_size=1000, d_model=64, n_heads=4, positions="rotary"))
    assert c.decoder
    network = build(replace(c, encoder=None, decoder=replace(c.decoder, embedding_scale=1.0, cross_heads=())))
    assert network.embeddings.tokens.weight.std().item() == pytest.approx(64**-0.5, rel=0.05)


def test_projections_start_xavier_uniform_with_smaller_residual_projections_and_zero_biases() -> None:
    torch.manual_seed(1)
    shape = TransformerConfig(vocab_size=20, d_model=64, d_ff=128, n_heads=4, n_encoder_layers=2, n_decoder_layers=8)
    for name, module in build_model(replace(shape, tied_embeddings="none")).named_modules():
        if isinstance(module, nn.Linear):
            bound = (6 / (module.in_features + module.out_features)) ** 0.5
            if name.endswith(("o_proj", "down_proj")):
                bound *= (2 * (2 if name.startswith("encoder") else 8)) ** -0.5
            assert module.weight.abs().max().item() == pytest.approx(bound, rel=0.01)
            assert module.bias is None or not module.bias.any()


@pytest.mark.parametrize("positions", ["rotary", "relative", "none"])
def test_positions_that_enter_in_attention(positions: str, build_small: Callable[..., Transformer]) -> None:
    """Nothing is added to embeddings; with the first two, word order still matters."""
    model = build_small(positions=positions).eval()
    src = torch.tensor([[5, 6, 7, 2]])
    turned, mask = src[:, [1, 0, 2, 3]], torch.ones(1, 4, dtype=torch.bool)
    states, others = model.encode(src, mask), model.encode(turned, mask)[:, [1, 0, 2, 3]]
    assert torch.allclose(states, others, atol=1e-5) == (positions == "none")

"""Parameter names are a file format: changing one breaks every existing model directory."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from headwise.core.build import count_parameters, load_parameters, parameters_of
from headwise.core.transformer import Transformer
from headwise.errors import UserError

LAYERS = [
    "decoder.layers.0.cross_attn.k_proj.bias",
    "decoder.layers.0.cross_attn.k_proj.weight",
    "decoder.layers.0.cross_attn.o_proj.bias",
    "decoder.layers.0.cross_attn.o_proj.weight",
    "decoder.layers.0.cross_attn.q_proj.bias",
    "decoder.layers.0.cross_attn.q_proj.weight",
    "decoder.layers.0.cross_attn.v_proj.bias",
    "decoder.layers.0.cross_attn.v_proj.weight",
    "decoder.layers.0.cross_attn_sublayer.norm.bias",
    "decoder.layers.0.cross_attn_sublayer.norm.weight",
    "decoder.layers.0.ffn.down_proj.bias",
    "decoder.layers.0.ffn.down_proj.weight",
    "decoder.layers.0.ffn.up_proj.bias",
    "decoder.layers.0.ffn.up_proj.weight",
    "decoder.layers.0.ffn_sublayer.norm.bias",
    "decoder.layers.0.ffn_sublayer.norm.weight",
    "decoder.layers.0.self_attn.k_proj.bias",
    "decoder.layers.0.self_attn.k_proj.weight",
    "decoder.layers.0.self_attn.o_proj.bias",
    "decoder.layers.0.self_attn.o_proj.weight",
    "decoder.layers.0.self_attn.q_proj.bias",
    "decoder.layers.0.self_attn.q_proj.weight",
    "decoder.layers.0.self_attn.v_proj.bias",
    "decoder.layers.0.self_attn.v_proj.weight",
    "decoder.layers.0.self_attn_sublayer.norm.bias",
    "decoder.layers.0.self_attn_sublayer.norm.weight",
    "encoder.layers.0.ffn.down_proj.bias",
    "encoder.layers.0.ffn.down_proj.weight",
    "encoder.layers.0.ffn.up_proj.bias",
    "encoder.layers.0.ffn.up_proj.weight",
    "encoder.layers.0.ffn_sublayer.norm.bias",
    "encoder.layers.0.ffn_sublayer.norm.weight",
    "encoder.layers.0.self_attn.k_proj.bias",
    "encoder.layers.0.self_attn.k_proj.weight",
    "encoder.layers.0.self_attn.o_proj.bias",
    "encoder.layers.0.self_attn.o_proj.weight",
    "encoder.layers.0.self_attn.q_proj.bias",
    "encoder.layers.0.self_attn.q_proj.weight",
    "encoder.layers.0.self_attn.v_proj.bias",
    "encoder.layers.0.self_attn.v_proj.weight",
    "encoder.layers.0.self_attn_sublayer.norm.bias",
    "encoder.layers.0.self_attn_sublayer.norm.weight",
]
ONE_TABLE = ["src_embeddings.tokens.weight"]
TWO_TABLES = [*ONE_TABLE, "tgt_embeddings.tokens.weight"]
THREE_TABLES = [*TWO_TABLES, "head.output.weight"]
FINAL_NORMS = ["decoder.norm.bias", "decoder.norm.weight", "encoder.norm.bias", "encoder.norm.weight"]
POSITIONS = ["src_embeddings.positions.table.weight", "tgt_embeddings.positions.table.weight"]


@pytest.fixture
def build_single(build_small: Callable[..., Transformer]) -> Callable[..., Transformer]:
    return lambda **changes: build_small(n_encoder_layers=1, n_decoder_layers=1, **changes)


@pytest.mark.parametrize(
    ("changes", "beyond_layers"),
    [
        ({}, ONE_TABLE),
        ({"tied_embeddings": "target"}, TWO_TABLES),
        ({"tied_embeddings": "none"}, THREE_TABLES),
        ({"norm_position": "pre"}, ONE_TABLE + FINAL_NORMS),
        ({"positions": "learned"}, ONE_TABLE + POSITIONS),
    ],
    ids=str,
)
def test_names_are_pinned(
    changes: dict[str, Any], beyond_layers: list[str], build_single: Callable[..., Transformer]
) -> None:
    assert sorted(parameters_of(build_single(**changes))) == sorted(LAYERS + beyond_layers)


@pytest.mark.parametrize("tied", ["all", "target", "none"])
def test_loading_parameters_makes_models_equal(tied: str, build_single: Callable[..., Transformer]) -> None:
    one, other = build_single(tied_embeddings=tied), build_single(tied_embeddings=tied)
    src, tgt_in, src_mask = torch.tensor([[5, 4, 2]]), torch.tensor([[1, 7]]), torch.ones(1, 3, dtype=torch.bool)

    def logits(model: Transformer) -> torch.Tensor:
        return model.logits(model.states(src, tgt_in, src_mask))

    assert not torch.equal(logits(one), logits(other))
    load_parameters(other, parameters_of(one), "here")
    assert torch.equal(logits(one), logits(other))


def test_loading_copies(build_single: Callable[..., Transformer]) -> None:
    one, other = build_single(), build_single()
    load_parameters(other, parameters_of(one), "here")
    addresses = [{tensor.data_ptr() for tensor in parameters_of(model).values()} for model in (one, other)]
    assert addresses[0].isdisjoint(addresses[1])


def test_all_mismatches_are_listed_and_nothing_is_copied(build_single: Callable[..., Transformer]) -> None:
    model = build_single()
    before = {name: tensor.clone() for name, tensor in parameters_of(model).items()}
    tensors = {name: tensor + 1 for name, tensor in before.items()}
    del tensors["encoder.layers.0.ffn.up_proj.bias"]
    tensors["encoder.layers.7.ffn.up_proj.bias"] = torch.zeros(16)
    tensors["src_embeddings.tokens.weight"] = torch.zeros(12, 8)
    with pytest.raises(UserError) as error:
        load_parameters(model, tensors, "model.safetensors")
    assert str(error.value) == (
        "model.safetensors does not fit its configuration: missing encoder.layers.0.ffn.up_proj.bias; "
        "unexpected encoder.layers.7.ffn.up_proj.bias; src_embeddings.tokens.weight is [12, 8], should be [11, 8]"
    )
    assert all(torch.equal(tensor, before[name]) for name, tensor in parameters_of(model).items())


def test_shared_parameters_count_once(build_single: Callable[..., Transformer]) -> None:
    counts = [count_parameters(build_single(tied_embeddings=tied)) for tied in ("all", "target", "none")]
    table = 11 * 8
    assert counts == [counts[0], counts[0] + table, counts[0] + 2 * table]

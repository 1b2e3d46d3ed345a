"""Building from a configuration: every field has its effect, unused settings are refused, names are pinned."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import nn

from headwise.config.model import ConvConfig, RecurrentConfig, longest_sequence
from headwise.config.settings import RunConfig, check, load_recipe
from headwise.core.build import count_parameters, load_parameters, parameters_of
from headwise.core.dropout import Dropout
from headwise.errors import UserError
from headwise.pytorch.architectures.attention import AdditiveAttention, DotAttention, GeneralAttention
from headwise.pytorch.architectures.recurrent import RecurrentEncoder, ReversingEncoder
from headwise.pytorch.architectures.recurrent_decoders import AttentionalDecoder, InputFeedingDecoder
from headwise.pytorch.architectures.registry import Network, build_network

Reader = Callable[[Any], Any]


def vocabulary_tables(model: Network) -> int:
    return sum(len(parameter) == 11 for parameter in model.parameters())


def rates(model: Network) -> set[float]:
    return {m.p for m in model.modules() if isinstance(m, Dropout)} | {
        m.dropout for m in model.modules() if isinstance(m, nn.RNNBase) and m.num_layers > 1
    }


# (variant, field): a change, a property of the built model, its value before, its value after
FLIPS: dict[tuple[str, str], tuple[dict[str, Any], Reader, Any, Any]] = {
    ("dot", "vocab_size"): ({"vocab_size": 13}, lambda m: m.output.out_features, 11, 13),
    ("dot", "d_model"): ({"d_model": 8}, lambda m: m.decoder.rnn.hidden_size, 6, 8),
    ("dot", "n_encoder_layers"): ({"n_encoder_layers": 3}, lambda m: m.encoder.rnn.num_layers, 2, 3),
    ("dot", "n_decoder_layers"): ({"n_decoder_layers": 1}, lambda m: m.decoder.rnn.num_layers, 2, 1),
    ("dot", "dropout"): ({"dropout": 0.25}, rates, {0.0}, {0.25}),
    ("dot", "tied_embeddings"): ({"tied_embeddings": "none"}, vocabulary_tables, 1, 3),
    ("dot", "cell"): ({"cell": "rnn"}, lambda m: type(m.decoder.rnn), nn.LSTM, nn.RNN),
    ("dot", "attention"): (
        {"attention": "general"},
        lambda m: type(m.decoder.cross_attn),
        DotAttention,
        GeneralAttention,
    ),
    ("dot", "input_feeding"): (
        {"input_feeding": True},
        lambda m: type(m.decoder),
        AttentionalDecoder,
        InputFeedingDecoder,
    ),
    ("dot", "reverse_source"): (
        {"reverse_source": True},
        lambda m: type(m.encoder),
        RecurrentEncoder,
        ReversingEncoder,
    ),
    ("bahdanau", "bidirectional"): (
        {"bidirectional": False},
        lambda m: m.decoder.cross_attn.k_proj.in_features,
        12,
        6,
    ),
    ("conv", "kernel_width"): ({"kernel_width": 5}, lambda m: m.encoder.layers[1].conv.proj.direction.size(1), 18, 30),
    ("conv", "max_len"): ({"max_len": 9}, lambda m: m.tgt_embeddings.positions.table.weight.shape, (24, 6), (9, 6)),
    ("conv", "d_model"): ({"d_model": 8}, lambda m: m.output.in_features, 6, 8),
    ("conv", "n_encoder_layers"): ({"n_encoder_layers": 3}, lambda m: len(m.encoder.layers), 2, 3),
    ("conv", "n_decoder_layers"): ({"n_decoder_layers": 1}, lambda m: len(m.decoder.layers), 2, 1),
    ("conv", "dropout"): ({"dropout": 0.25}, rates, {0.0}, {0.25}),
    ("conv", "tied_embeddings"): ({"tied_embeddings": "target"}, vocabulary_tables, 1, 2),
}
FOR_OTHER_TASKS = {
    "image_size",
    "patch_size",
    "task",
    "pooling",
    "n_inputs",
    "n_outputs",
}  # tests/unit/core/test_heads.py


@pytest.mark.parametrize(("variant", "field"), FLIPS)
def test_field_changes_the_model(variant: str, field: str, build_small: Callable[..., Network]) -> None:
    changes, read, before, after = FLIPS[variant, field]
    assert read(build_small(variant)) == before
    assert read(build_small(variant, **changes)) == after


def test_every_field_is_flipped() -> None:
    elsewhere = {"architecture", "pad_id", "positions"} | FOR_OTHER_TASKS
    names = {field.name for table in (RecurrentConfig, ConvConfig) for field in fields(table)}
    assert names == {field for _, field in FLIPS} | elsewhere


def test_additive_attention_builds_bahdanaus_decoder(build_small: Callable[..., Network]) -> None:
    assert isinstance(build_small("bahdanau").decoder.cross_attn, AdditiveAttention)


@pytest.mark.parametrize("variant", ["dot", "conv"])
@pytest.mark.parametrize(
    ("tied", "source_is_target", "target_is_output"),
    [("all", True, True), ("target", False, True), ("none", False, False)],
)
def test_tied_embeddings(
    variant: str, tied: str, source_is_target: bool, target_is_output: bool, build_small: Callable[..., Network]
) -> None:
    model = build_small(variant, tied_embeddings=tied)
    tables = model.src_embeddings, model.tgt_embeddings
    source, target = (getattr(table, "tokens", table).weight for table in tables)
    assert (source is target, target is model.output.weight) == (source_is_target, target_is_output)


# --- invalid settings

MEANINGLESS = [
    ("bahdanau", {"n_heads": 4}, "model.n_heads = 4 is not used by model.architecture = recurrent"),
    ("bahdanau", {"d_ff": 64}, "model.d_ff = 64 is not used"),
    ("bahdanau", {"norm_position": "pre"}, "model.norm_position = pre is not used"),
    ("bahdanau", {"positions": "learned"}, "model.positions = learned is not used"),
    ("bahdanau", {"kernel_width": 5}, "model.kernel_width = 5 is not used"),
    ("conv", {"cell": "lstm"}, "model.cell = lstm is not used by model.architecture = conv"),
    ("conv", {"bidirectional": False}, "model.bidirectional = False is not used"),
    ("conv", {"kernel_width": 4}, "model.kernel_width = 4: must be odd"),
    ("conv", {"kernel_width": 0}, "model.kernel_width = 0: must be greater than 0"),
    ("conv", {"positions": "sinusoidal"}, "model.architecture = conv needs learned positions"),
    ("dot", {"bidirectional": True}, "model.attention = dot needs states of the same width"),
    ("bahdanau", {"input_feeding": True}, "model.input_feeding is for model.attention = dot or general, not additive"),
    ("rnn", {"input_feeding": True}, "model.input_feeding is for model.attention = dot or general, not none"),
]


@pytest.mark.parametrize(("variant", "changes", "message"), MEANINGLESS, ids=lambda x: str(x)[:40])
def test_unused_settings_are_refused(variant: str, changes: dict[str, Any], message: str, configure) -> None:
    with pytest.raises(UserError) as error:
        configure(variant, **changes)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_recurrent_networks_have_no_layers_to_recompute(configure) -> None:
    config = RunConfig(model=configure("bahdanau"))
    with pytest.raises(UserError, match=r"train\.recompute = True.*not.*model\.architecture = recurrent"):
        check(replace(config, train=replace(config.train, recompute=True)))


# --- recipes

RECIPES = ("rnn", "lstm", "gru", "bahdanau", "luong", "conv")


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_has_the_size_and_data_of_tiny(name: str) -> None:
    tiny, config = load_recipe("tiny"), check(load_recipe(name))
    sizes = [count_parameters(build_network(replace(c.model, vocab_size=4000))) for c in (tiny, config)]
    assert sizes[1] == pytest.approx(sizes[0], rel=0.05)
    assert (config.data, config.decode) == (tiny.data, tiny.decode)
    own = {name: getattr(tiny.train, name) for name in ("learning_rate", "clip_norm")}
    assert replace(config.train, **own) == tiny.train
    assert (config.model.dropout, config.model.tied_embeddings) == (tiny.model.dropout, tiny.model.tied_embeddings)
    assert longest_sequence(config.model) == (256 if name == "conv" else None)


# --- parameter names are a file format


def rnn_names(stem: str, suffixes: list[str]) -> list[str]:
    return [f"{stem}.{kind}_{s}" for s in suffixes for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]


def normalized(*stems: str) -> list[str]:
    return [f"{stem}.{part}" for stem in stems for part in ("direction", "magnitude", "bias")]


ENCODER, DECODER = rnn_names("encoder.rnn", ["l0"]), rnn_names("decoder.rnn", ["l0"])
BRIDGE = ["bridge.proj.weight", "bridge.proj.bias"]
NAMES = {
    "rnn": [*ENCODER, *DECODER],
    "lstm-reversed": [*ENCODER, *DECODER],
    "gru-summary": [*rnn_names("encoder.rnn", ["l0", "l0_reverse"]), *DECODER, *BRIDGE],
    "dot": [*ENCODER, *DECODER, "decoder.combine_proj.weight"],
    "luong": [*ENCODER, *DECODER, "decoder.combine_proj.weight", "decoder.cross_attn.k_proj.weight"],
    "bahdanau": [
        *rnn_names("encoder.rnn", ["l0", "l0_reverse"]),
        *DECODER,
        *BRIDGE,
        "decoder.cross_attn.q_proj.weight",
        "decoder.cross_attn.q_proj.bias",
        "decoder.cross_attn.k_proj.weight",
        "decoder.cross_attn.score.weight",
        "decoder.readout_proj.weight",
        "decoder.readout_proj.bias",
    ],
    "conv": [
        *normalized("encoder.in_proj", "encoder.layers.0.conv.proj", "encoder.out_proj"),
        *normalized("decoder.in_proj", "decoder.layers.0.conv.proj", "decoder.layers.0.q_proj", "decoder.out_proj"),
        "src_embeddings.positions.table.weight",
        "tgt_embeddings.positions.table.weight",
    ],
}


@pytest.mark.parametrize("tied", ["all", "none"])
@pytest.mark.parametrize("variant", NAMES)
def test_names_are_pinned(variant: str, tied: str, build_small: Callable[..., Network]) -> None:
    model = build_small(variant, n_encoder_layers=1, n_decoder_layers=1, tied_embeddings=tied)
    table = "tokens.weight" if variant == "conv" else "weight"
    tables = [f"src_embeddings.{table}"]
    if tied == "none":
        tables += [f"tgt_embeddings.{table}", "output.weight"]
    assert sorted(parameters_of(model)) == sorted(NAMES[variant] + tables)


def test_loading_parameters_makes_models_equal(model: Network, request: pytest.FixtureRequest, build_small) -> None:
    other = build_small(request.node.callspec.params["model"])
    src, tgt_in, src_mask = torch.tensor([[5, 4, 2]]), torch.tensor([[1, 7]]), torch.ones(1, 3, dtype=torch.bool)
    assert not torch.equal(model(src, tgt_in, src_mask), other(src, tgt_in, src_mask))
    load_parameters(other, parameters_of(model), "here")
    assert torch.equal(model(src, tgt_in, src_mask), other(src, tgt_in, src_mask))


def test_seed_decides_the_parameters(configure) -> None:
    for variant in ("bahdanau", "conv"):
        fresh = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            fresh.append(parameters_of(build_network(configure(variant))))
        one, same, other = fresh
        assert all(torch.equal(one[name], same[name]) for name in one)
        assert any(not torch.equal(one[name], other[name]) for name in one)

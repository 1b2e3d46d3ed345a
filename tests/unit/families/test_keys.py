"""Reading `config.json`: ignored keys, refused keys, and invalid values."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from published import PUBLISHED, REFUSED
from safetensors.torch import save_file

import headwise
from headwise.config.network import NetworkConfig
from headwise.core.build import build_empty
from headwise.errors import UserError
from headwise.families.registry import FAMILIES
from headwise.pytorch.checkpoint.published import read_checkpoint
from headwise.pytorch.checkpoint.xlnet_names import shape_from_hf

BERT = {
    "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12, "vocab_size": 11,
    "max_position_embeddings": 16, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_act": "gelu",
    "tie_word_embeddings": True, "pad_token_id": 1, "is_decoder": False,
}  # fmt: skip
ROPE = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64}  # fmt: skip
LLAMA = {
    "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4,
    "intermediate_size": 12, "vocab_size": 11, "rms_norm_eps": 1e-6, "hidden_act": "silu", "rope_scaling": ROPE,
    "rope_theta": 1e4, "tie_word_embeddings": False, "eos_token_id": [1, 2],
}  # fmt: skip
WINDOWS = {"sliding_window": 8, "layer_types": ["sliding_attention"]}
BART = {
    "d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 12, "decoder_ffn_dim": 12, "vocab_size": 11, "max_position_embeddings": 16, "pad_token_id": 1,
    "activation_function": "gelu", "scale_embedding": False, "tie_word_embeddings": True,
}  # fmt: skip
T5 = {
    "d_model": 8, "d_kv": 4, "d_ff": 12, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 2, "vocab_size": 11,
    "feed_forward_proj": "relu", "layer_norm_epsilon": 1e-6, "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 16, "tie_word_embeddings": True,
}  # fmt: skip
VIT = {key: BERT[key] for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")} | {
    "image_size": 8, "patch_size": 4, "num_channels": 3, "qkv_bias": True, "id2label": {"0": "cat", "1": "dog"},
    "architectures": ["ViTForImageClassification"], "layer_norm_eps": 1e-12,
}  # fmt: skip
GPT2 = {
    "n_embd": 8, "n_layer": 1, "n_head": 2, "n_inner": 12, "n_positions": 16, "vocab_size": 11,
    "activation_function": "relu", "layer_norm_epsilon": 1e-5, "scale_attn_weights": True, "tie_word_embeddings": True,
}  # fmt: skip
GEMMA2 = LLAMA | WINDOWS | {"query_pre_attn_scalar": 4, "attn_logit_softcapping": 5.0, "hidden_activation": "gelu",
                            "final_logit_softcapping": 3.0, "rope_scaling": None}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "albert": BERT | {"embedding_size": 4, "num_hidden_layers": 2, "num_hidden_groups": 2, "inner_group_num": 1,
                      "hidden_act": "gelu_new"},
    "bart": BART,
    "bert": BERT,
    "camembert": BERT,
    "deberta-v2": BERT | {
        "type_vocab_size": 0, "relative_attention": True, "position_buckets": 4, "max_relative_positions": -1,
        "pos_att_type": "p2c|c2p", "share_att_key": True, "norm_rel_ebd": "layer_norm", "position_biased_input": False,
        "pooler_hidden_act": "gelu", "pooler_hidden_size": 8, "pooler_dropout": 0, "layer_norm_eps": 1e-7,
    },
    "deit": VIT | {"architectures": ["DeiTForImageClassification"]},
    "distilbert": {"dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 12, "vocab_size": 11, "activation": "gelu",
                   "max_position_embeddings": 16, "tie_word_embeddings": True},
    "electra": BERT | {"embedding_size": 4},
    "gemma": LLAMA | {"hidden_act": "gelu"},
    "gemma2": LLAMA | WINDOWS | {"query_pre_attn_scalar": 4, "attn_logit_softcapping": 5.0, "hidden_activation": "gelu",
                                 "final_logit_softcapping": 3.0},
    "gpt2": GPT2,
    "gpt_neox": {key: value for key, value in BERT.items() if key != "type_vocab_size"}
                | {"rotary_pct": 0.5, "rotary_emb_base": 1e4, "use_parallel_residual": True},
    "llama": LLAMA | {"mlp_bias": False, "attention_bias": False, "rope_interleaved": False},
    "m2m_100": BART,
    "marian": BART | {"decoder_vocab_size": 11, "share_encoder_decoder_embeddings": True},
    "mbart": BART,
    "mistral": LLAMA | {"sliding_window": 8},
    "modernbert": {key: value for key, value in BERT.items() if key not in ("hidden_act", "type_vocab_size")}
                  | {"hidden_activation": "gelu", "local_attention": 4, "global_attn_every_n_layers": 3,
                     "global_rope_theta": 1e5, "local_rope_theta": 1e4, "norm_eps": 1e-5, "norm_bias": False,
                     "attention_bias": False, "mlp_bias": False, "classifier_bias": False, "decoder_bias": True,
                     "classifier_activation": "gelu", "classifier_pooling": "mean",
                     "rope_parameters": {"full_attention": {"rope_type": "default"}}},
    "mpnet": BERT | {"relative_attention_num_buckets": 32},
    "mt5": T5,
    "pegasus": BART,
    "qwen2": LLAMA | WINDOWS | {"use_sliding_window": True, "max_window_layers": 0, "use_mrope": False},
    "qwen3": LLAMA | WINDOWS | {"use_sliding_window": True, "max_window_layers": 0},
    "roberta": BERT,
    "t5": T5,
    "t5gemma": {"encoder": {**GEMMA2, "is_decoder": False}, "decoder": {**GEMMA2, "cross_attention_hidden_size": 8},
                "vocab_size": 11, "is_encoder_decoder": True, "dropout_rate": 0.0, "tie_word_embeddings": True},
    "vision-encoder-decoder": {"encoder": VIT | {"model_type": "vit"}, "tie_word_embeddings": False,
                               "decoder": GPT2 | {"model_type": "gpt2", "add_cross_attention": True}},
    "vit": VIT,
    "whisper": {key: value for key, value in BART.items() if key != "max_position_embeddings"}
               | {"num_mel_bins": 4, "max_source_positions": 8, "max_target_positions": 8},
    "xlm-roberta": BERT,
    "xlnet": {"d_model": 8, "n_head": 2, "d_head": 4, "n_layer": 1, "d_inner": 12, "vocab_size": 11, "dropout": 0.1,
              "ff_activation": "gelu", "attn_type": "bi", "layer_norm_eps": 1e-12, "mem_len": None, "reuse_len": 3,
              "clamp_len": -1, "tie_word_embeddings": True, "bi_data": False, "same_length": False},
}  # fmt: skip
for kind, values in CONFIGS.items():
    CONFIGS[kind] = {"model_type": kind, **values}


def read(values: dict[str, Any]) -> NetworkConfig:
    return FAMILIES[values["model_type"]].config_from_hf(values)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder without weights: for a supported configuration, loading ends with that error."""
    return tmp_path


def load(folder: Path, config: Any) -> str:
    """The one-line error of `headwise.load` for a config.json."""
    text = config if isinstance(config, str) else json.dumps(config)
    (folder / "config.json").write_text(text)
    with pytest.raises(UserError) as raised:
        headwise.load(folder, "cpu")
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_every_family_is_here() -> None:
    assert set(CONFIGS) == {*FAMILIES, "xlnet"}


# --- Ignored and refused keys ---


@pytest.mark.parametrize(
    ("family", "keys"),
    [
        ("whisper", {"forced_decoder_ids": [[1, 50259], [2, 50359]]}),
        ("bert", {"directionality": "bidi", "pooler_fc_size": 768, "pooler_type": "first_token_transform"}),
        ("gpt2", {"n_special": 0, "predict_special_tokens": True, "output_past": True}),
        ("qwen2", {"use_mrope": False}),
        ("llama", {"is_llama_config": True, "rope_interleaved": False, "transformers.js_config": {"dtype": "q4"}}),
        ("bart", {"force_bos_token_to_be_generated": True, "save_step": 6, "eos_token_ids": [2]}),
        ("llama", {"unsloth_fixed": True, "unsloth_version": "2025.1"}),
        ("roberta", {"language": "english", "name": "Roberta"}),
        ("modernbert", {"reference_compile": False, "sparse_prediction": True, "initializer_cutoff_factor": 2.0}),
        ("deberta-v2", {"pos_att_type": ["p2c", "c2p"], "legacy": False, "cls_dropout": 0.1, "z_steps": 0}),
        ("albert", {"net_structure_type": 0, "gap_size": 0, "num_memory_blocks": 0, "down_scale_factor": 1}),
    ],
)
def test_ignored_keys(family: str, keys: dict[str, Any]) -> None:
    assert read(CONFIGS[family] | keys) == read(CONFIGS[family])


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_unknown_keys_are_refused_unless_null(family: str) -> None:
    assert read(CONFIGS[family] | {"sparsity": None}) == read(CONFIGS[family])
    with pytest.raises(UserError, match=r"config.json: not.*sparsity = 3"):
        read(CONFIGS[family] | {"sparsity": 3})


@pytest.mark.parametrize(
    ("family", "keys", "message"),
    [
        ("qwen2", {"use_mrope": True}, "use_mrope = True is not supported"),
        ("llama", {"rope_interleaved": True}, "rope_interleaved = True is not supported"),
        ("qwen2", {"dual_chunk_attention_config": {"chunk_size": 9}}, "attention in chunks is not supported"),
        ("llama", {"auto_map": {"AutoModel": "modeling.Model"}}, "auto_map: it needs custom code"),
        (
            "llama",
            {"rope_scaling": {"type": "yarn", "factor": 4.0}},
            "rope_scaling.type = 'yarn' is not supported, only default, linear, llama3",
        ),
    ],
)
def test_refused_keys_with_a_reason(family: str, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read(CONFIGS[family] | keys)


def test_without_a_model_type(folder: Path) -> None:
    values = {key: value for key, value in CONFIGS["bert"].items() if key != "model_type"}
    save_file({"layer.weight": torch.zeros(1)}, folder / "model.safetensors")
    for value in (values, {**values, "model_type": None}):
        said = load(folder, value)
        assert said.startswith(f"{folder}/config.json: has no model_type, which names the family")
        assert "add it to the file" in said


@pytest.mark.parametrize(("given", "window"), [({}, 4096), ({"sliding_window": None}, 0), ({"sliding_window": 7}, 7)])
def test_a_missing_window_is_not_null(given: dict[str, Any], window: int) -> None:
    values = {key: value for key, value in CONFIGS["mistral"].items() if key != "sliding_window"}
    decoder = read(values | given).decoder
    assert decoder and decoder.windows == ((window,) if window else ())


# --- Pretrained models ---


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_pretrained_model_is_supported_or_refused_with_a_reason(name: str, folder: Path) -> None:
    said = load(folder, PUBLISHED[name])
    assert REFUSED.get(name, "has neither model.safetensors nor") in said
    assert len(said) < 500


def test_every_family_is_among_the_published() -> None:
    supported = {values.get("model_type") for name, values in PUBLISHED.items() if name not in REFUSED}
    assert supported - {None} == {*CONFIGS}


# --- Invalid values ---


@pytest.mark.parametrize(
    ("family", "keys", "message"),
    [
        ("vision-encoder-decoder", {"decoder": GPT2}, "decoder.add_cross_attention must be true"),
        ("vision-encoder-decoder", {"decoder": {"model_type": "bert"}},
         "decoder.model_type = 'bert' is not supported, only 'gpt2'"),
        ("vision-encoder-decoder", {"encoder": {"model_type": "swin"}},
         "encoder.model_type = 'swin' is not supported, only vit or deit"),
        ("vision-encoder-decoder", {"encoder": None}, "has no 'encoder.hidden_size'"),
        ("vision-encoder-decoder", {"decoder": CONFIGS["vision-encoder-decoder"]["decoder"] | {
            "cross_attention_hidden_size": 9}}, "decoder.cross_attention_hidden_size = 9 is not the width of both, 8"),
        ("vit", {"patch_size": [4, 4]}, "patch_size = [4, 4]: must be a whole number from 1 to"),
        ("vit", {"patch_size": 9}, "patch_size = 9 is larger than an image of image_size = (8, 8)"),
        ("vit", {"image_size": [8, 8, 8]}, "image_size = [8, 8, 8]: must be a whole number from 1 to 32,768, or two"),
        ("vit", {"id2label": ["cat", "dog"]}, "id2label = ['cat', 'dog']: must be an object with numbers as keys"),
        ("bert", {"num_attention_heads": 0}, "num_attention_heads = 0: must be a whole number from 1"),
        ("bert", {"hidden_size": "8"}, "hidden_size = '8': must be a whole number"),
        ("bert", {"hidden_size": 8.0}, "hidden_size = 8.0: must be a whole number"),
        ("bert", {"hidden_size": True}, "hidden_size = True: must be a whole number"),
        ("bert", {"hidden_size": -8}, "hidden_size = -8: must be a whole number"),
        ("bert", {"hidden_size": 9}, "hidden_size = 9 is not a multiple of num_attention_heads = 2"),
        ("bert", {"vocab_size": 10**12}, "vocab_size = 1000000000000: must be a whole number from 1 to 16,777,216"),
        ("bert", {"layer_norm_eps": float("nan")}, "layer_norm_eps = nan: must be a number from 0 to below 1"),
        ("bert", {"architectures": "BertModel"}, "architectures = 'BertModel': must be a list of names"),
        ("bert", {"pad_token_id": "[PAD]"}, "pad_token_id = '[PAD]': must be the id of a token"),
        ("albert", {"num_hidden_groups": 3}, "num_hidden_layers = 2 is not a multiple of num_hidden_groups = 3"),
        ("albert", {"embedding_size": 8}, "embedding_size = 8 is also hidden_size, which is not supported"),
        ("albert", {"inner_group_num": 2}, "inner_group_num = 2 is not supported, only 1"),
        ("modernbert", {"decoder_bias": False}, "decoder_bias = False is not supported, only True"),
        ("modernbert", {"classifier_pooling": "max", "architectures": ["ModernBertForSequenceClassification"]},
         "classifier_pooling = 'max' is not supported, only cls or mean"),
        ("modernbert", {"rope_parameters": {"sliding_attention": 3}}, "rope_parameters.sliding_attention = 3: must be"),
        ("modernbert", {"rope_scaling": {"factor": 2.0}}, "not supported: rope_scaling = {'factor': 2.0}"),
        ("deberta-v2", {"relative_attention": False}, "relative_attention = False is not supported, only True"),
        ("deberta-v2", {"share_att_key": None}, "share_att_key = False is not supported, only True"),
        ("deberta-v2", {"conv_kernel_size": 3}, "conv_kernel_size = 3 is not supported, only 0"),
        ("deberta-v2", {"position_buckets": -1}, "position_buckets = -1: must be a whole number from 4"),
        ("deberta-v2", {"max_relative_positions": 3}, "max_relative_positions = 3 is too small for 4 buckets"),
        ("deberta-v2", {"pos_att_type": "p2p"}, "pos_att_type = 'p2p' is not supported, only c2p, p2c or c2p|p2c"),
        ("deberta-v2", {"pos_att_type": None}, "pos_att_type = None is not supported, only c2p, p2c or c2p|p2c"),
        ("deberta-v2", {"embedding_size": 4}, "embedding_size = 4 is not hidden_size = 8, which is not supported"),
        ("deberta-v2", {"attention_head_size": 2}, "2 heads of attention_head_size = 2 do not make 8"),
        ("deberta-v2", {"pooler_hidden_size": 4}, "pooler_hidden_size = 4 is not hidden_size = 8"),
        ("deberta-v2", {"legacy": False, "architectures": ["DebertaV2ForMaskedLM"]},
         "legacy = False is not supported, only True"),
        ("t5gemma", {"is_encoder_decoder": False}, "is_encoder_decoder = False is not supported, only True"),
        ("t5gemma", {"decoder": {**GEMMA2, "cross_attention_hidden_size": 7}},
         "decoder.cross_attention_hidden_size = 7 is not 8"),
        ("t5gemma", {"encoder": {**GEMMA2, "hidden_size": 0}}, "encoder.hidden_size = 0: must be a whole number"),
        ("mpnet", {"relative_attention_num_buckets": 16}, "relative_attention_num_buckets = 16 is not supported, only"),
        ("mpnet", {"max_position_embeddings": 2}, "max_position_embeddings = 2 leaves no positions"),
        ("roberta", {"max_position_embeddings": 2}, "max_position_embeddings = 2 leaves no positions"),
        ("llama", {"num_key_value_heads": 3}, "num_attention_heads = 4 is not a multiple of num_key_value_heads = 3"),
        ("llama", {"rope_theta": float("inf"), "rope_scaling": None}, "rope_theta = inf: must be a finite number"),
        ("llama", {"rope_scaling": [1]}, "rope_scaling = [1]: must be an object"),
        ("llama", {"rope_scaling": ROPE | {"factor": 0}}, "rope_scaling.factor = 0: must be a finite number above 0"),
        ("llama", {"rope_scaling": ROPE | {"low_freq_factor": 4}}, "rope_scaling.low_freq_factor = 4 is not below"),
        ("llama", {"head_dim": 3}, "rotary positions need an even number of components, not 1 of a head of width 3"),
        ("llama", {"tie_word_embeddings": "no"}, "tie_word_embeddings = 'no': must be true or false"),
        ("llama", {"num_hidden_layers": 10**9}, "num_hidden_layers = 1000000000: must be a whole number from 1 to 1,0"),
        ("qwen2", {"layer_types": ["full_attention"] * 2}, "layer_types = ['full_attention', 'full_attention']: must"),
        ("t5", {"feed_forward_proj": 3}, "feed_forward_proj = 3: must be a string"),
        ("t5", {"relative_attention_num_buckets": 2}, "relative_attention_num_buckets = 2: must be a whole number"),
        ("t5", {"relative_attention_max_distance": 4}, "relative_attention_max_distance = 4 is too small"),
        ("xlnet", {"n_head": 0}, "n_head = 0: must be a whole number"),
        ("xlnet", {"d_head": 3}, "2 heads of d_head = 3 do not make d_model = 8"),
    ],
)  # fmt: skip
def test_malformed_values_name_file_and_key(family: str, keys: dict[str, Any], message: str, folder: Path) -> None:
    assert load(folder, CONFIGS[family] | keys).startswith(f"{folder}/config.json: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "must be a JSON object"),
        ("null", "must be a JSON object"),
        ("{", "cannot be read as JSON"),
        ("", "cannot be read as JSON"),
        ("[" * 100_000, "cannot be read as JSON"),
        ('{"model_type": "bert", "hidden_size": 1' + "0" * 5000 + "}", "cannot be read as JSON"),
        ('{"model_type": ["bert"]}', "model_type = ['bert']: must be a string"),
        ('{"model_type": {}}', "model_type = {}: must be a string"),
    ],
    ids=["list", "null", "cut", "empty", "deep", "long", "type", "types"],
)
def test_malformed_files(text: str, message: str, folder: Path) -> None:
    said = load(folder, text)
    assert said.startswith(f"{folder}/config.json: {message}")
    assert len(said) < 400


WRONG: list[Any] = [
    0, -1, 3, 7.5, 1e-3, 10**30, 1e308, float("nan"), float("inf"), True, None, "", "8", "a" * 500, [], [3], [None],
    ["x", 2], {}, {"a": 1}, {"rope_type": "linear", "factor": "2"},
]  # fmt: skip


def changed(values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every key with every wrong value, and those inside of it."""
    for key in {*values, "architectures", "id2label", "num_labels"} - {"model_type"}:
        yield from ((key, wrong) for wrong in WRONG)
        for inner in values[key] if isinstance(values.get(key), dict) else ():
            yield from ((key, {**values[key], inner: wrong}) for wrong in WRONG)


@pytest.mark.few(12)
@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_any_value_gives_a_network_or_a_one_line_error(family: str) -> None:
    """And supported configurations can be built."""
    values, understood = CONFIGS[family], set()
    for key, wrong in changed(values):
        try:
            understood.add(shape_from_hf({**values, key: wrong}) if family == "xlnet" else read({**values, key: wrong}))
        except UserError as error:
            assert str(error).startswith("config.json: ")
            assert "\n" not in str(error) and len(str(error)) < 400, (key, wrong)
    assert understood
    for config in understood:
        if isinstance(config, NetworkConfig):
            build_empty(config)


def test_weights_are_not_opened_for_a_refused_configuration(folder: Path) -> None:
    assert "has neither" in load(folder, CONFIGS["bert"])
    with pytest.raises(UserError, match="hidden_size"):
        (folder / "config.json").write_text(json.dumps(CONFIGS["bert"] | {"hidden_size": 0}))
        read_checkpoint(folder)


@pytest.mark.parametrize("kind", ["bart", "marian", "m2m_100", "mbart", "pegasus"])
def test_defaults_are_those_of_transformers(kind: str) -> None:
    """`M2M100Config` scales embeddings and has ReLU, the others neither."""
    said = {"activation_function": "relu", "scale_embedding": True} if kind == "m2m_100" else {}
    said = {"activation_function": "gelu", "scale_embedding": False} | said
    silent = {key: value for key, value in CONFIGS[kind].items() if key not in said}
    assert FAMILIES[kind].config_from_hf(silent) == FAMILIES[kind].config_from_hf(silent | said)

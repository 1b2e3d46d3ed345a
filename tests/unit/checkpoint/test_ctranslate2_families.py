"""Encoders and decoders of CTranslate2, as its converter writes them, are the original models again."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models

import headwise
from headwise import cli
from headwise.errors import UserError
from headwise.pytorch.checkpoint.ctranslate2_families import open_encoder_or_decoder

ctranslate2 = pytest.importorskip("ctranslate2")
transformers = pytest.importorskip("transformers")
converters = pytest.importorskip("ctranslate2.converters.transformers")

SMALL = {
    **{"vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "max_position_embeddings": 32},
}
GROUPED = {**SMALL, "num_key_value_heads": 2}
GPT2 = {"vocab_size": 40, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
DISTILBERT = {"vocab_size": 40, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24, "max_position_embeddings": 32}
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {  # class of transformers, loader of CTranslate2, configuration
    "llama": ("LlamaForCausalLM", "Llama", {**GROUPED, "rope_theta": 5000.0}),
    "tied llama": ("LlamaForCausalLM", "Llama", {**GROUPED, "tie_word_embeddings": True}),
    "mistral": ("MistralForCausalLM", "Mistral", {**GROUPED, "sliding_window": 5}),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2", GROUPED),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3", {**GROUPED, "head_dim": 8}),
    "gpt2": ("GPT2LMHeadModel", "GPT2", GPT2),
    "bert": ("BertModel", "Bert", SMALL),
    "roberta": ("RobertaModel", "Roberta", {**SMALL, "max_position_embeddings": 34, "type_vocab_size": 1}),
    "distilbert": ("DistilBertModel", "DistilBert", DISTILBERT),
}


def made(kind: str) -> Any:
    name, _, values = MODELS[kind]
    model_class = getattr(transformers, name)
    config = model_class.config_class(**values)
    config.position_embedding_type = "absolute"  # which newer versions do not have, and the converter reads
    torch.manual_seed(1)
    model = model_class(config).eval()
    for parameter in model.parameters():  # norms and biases, too
        parameter.data = torch.randn_like(parameter) * 0.2 + (parameter.ndim == 1)
    return model


def write_model(folder: Path, kind: str, model: Any) -> None:
    """As `ct2-transformers-converter` writes a model, with the tokenizer of the original beside it."""
    loader = getattr(converters, f"{MODELS[kind][1]}Loader")()
    spec = loader.get_model_spec(deepcopy(model))
    epsilons = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon")
    spec.config.layer_norm_epsilon = next((e for name in epsilons if (e := getattr(model.config, name, 0))), 1e-12)
    spec.config.bos_token = "<s>"
    spec.register_vocabulary([f"t{i}" for i in range(40)])
    spec.validate()
    spec.optimize()
    spec.save(str(folder))
    tokenizer = Tokenizer(models.BPE({f"t{i}": i for i in range(38)}, []))
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", MODELS)
def test_a_model_is_the_original(kind: str, tmp_path: Path) -> None:
    """In float64, apart from rotary positions, which both compute in float32."""
    model = made(kind)
    write_model(tmp_path, kind, model)
    assert cli.main(["import", str(tmp_path), str(tmp_path / "out")]) == 0
    network = headwise.load(tmp_path / "out", device="cpu").network.double()
    tokens = torch.arange(3, 35).reshape(2, 16)
    with torch.no_grad():
        found = model.double()(tokens)
        if kind in ("bert", "roberta", "distilbert"):
            ours, wanted = network.encode(tokens, torch.ones_like(tokens, dtype=torch.bool)), found.last_hidden_state
        else:
            ours, wanted = network(tokens), found.logits
    torch.testing.assert_close(ours, wanted, rtol=1e-5, atol=1e-5)


def test_end_tokens_and_settings_of_the_tokenizer_are_kept(tmp_path: Path) -> None:
    write_model(tmp_path, "llama", made("llama"))
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    with open_encoder_or_decoder(tmp_path) as folder:
        assert json.loads((folder / "generation_config.json").read_text()) == {"bos_token_id": 38, "eos_token_id": 39}
        assert json.loads((folder / "tokenizer_config.json").read_text()) == {"chat_template": "{{ messages }}"}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("kind", "changed", "said"),
    [
        (
            "gpt2",
            (b"decoder/layer_0/ffn/linear_0/weight", b"decoder/layer_0/ffn/linear_9/weight"),
            "no supported family",
        ),
        ("llama", (b"decoder/layer_1/ffn/layer_norm", b"decoder/layer_1/ffn/layer_nurm"), "no supported family"),
        (
            "llama",
            (b"self_attention/rotary_interleave", b"self_attention/rotary_interleavy"),
            "rotary_interleavy = 0 is not",
        ),
    ],
)
def test_other_variables_are_refused(kind: str, changed: tuple[bytes, bytes], said: str, tmp_path: Path) -> None:
    write_model(tmp_path, kind, made(kind))
    path = tmp_path / "model.bin"
    path.write_bytes(path.read_bytes().replace(*changed))
    with pytest.raises(UserError, match=said), open_encoder_or_decoder(tmp_path):
        pass


def test_a_missing_tokenizer_is_named(tmp_path: Path) -> None:
    write_model(tmp_path, "bert", made("bert"))
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=r"has no tokenizer.json; copy it"), open_encoder_or_decoder(tmp_path):
        pass

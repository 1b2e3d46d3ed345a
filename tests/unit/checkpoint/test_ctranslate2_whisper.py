"""Whisper models of CTranslate2, as its converter writes them, are the original models again."""

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
from headwise.runtime.formats.ctranslate2_whisper import open_whisper

ctranslate2 = pytest.importorskip("ctranslate2")
transformers = pytest.importorskip("transformers")
converters = pytest.importorskip("ctranslate2.converters.transformers")

SPECIAL = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|translate|>", "<|transcribe|>", "<|notimestamps|>"]


@pytest.fixture(scope="module")
def model() -> Any:
    config = transformers.WhisperConfig(
        vocab_size=60, d_model=16, encoder_layers=2, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=4, encoder_ffn_dim=24, decoder_ffn_dim=32, num_mel_bins=8, max_source_positions=50,
        max_target_positions=24, decoder_start_token_id=11, pad_token_id=10, bos_token_id=10, eos_token_id=10,
    )  # fmt: skip
    torch.manual_seed(1)
    made = transformers.WhisperForConditionalGeneration(config).eval()
    for parameter in made.parameters():  # norms and biases, too
        parameter.data = torch.randn_like(parameter) * 0.2
    return made


def write_model(folder: Path, model: Any, quantization: str | None = None) -> None:
    """As `ct2-transformers-converter` writes a model, with the tokenizer of the original beside it."""
    spec = converters.WhisperLoader().get_model_spec(deepcopy(model))  # which is quantised in place
    spec.config.suppress_ids, spec.config.suppress_ids_begin = [1, 2], [10]
    spec.config.alignment_heads, spec.config.lang_ids = [[0, 1], [0, 3]], [12]
    spec.register_vocabulary([f"t{i}" for i in range(60)])
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))
    tokenizer = Tokenizer(models.BPE({f"t{i}": i for i in range(10)}, []))
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.save(str(folder / "tokenizer.json"))


def test_a_whisper_is_the_original(model: Any, tmp_path: Path) -> None:
    write_model(tmp_path, model)
    assert cli.main(["import", str(tmp_path), str(tmp_path / "out")]) == 0
    found: Any = headwise.load(tmp_path / "out", device="cpu")
    sound, tokens = torch.randn(1, 8, 100), torch.tensor([[11, 12, 14, 15, 3, 7]])
    with torch.no_grad():
        wanted = model.double()(sound.double(), decoder_input_ids=tokens).logits
        states = found.network.double().encode(sound.double(), torch.ones(1, 50, dtype=torch.bool))
        ours = found.network.logits(found.network.decode(tokens, states, torch.ones(1, 50, dtype=torch.bool)))
    model.float()
    torch.testing.assert_close(ours, wanted, rtol=1e-9, atol=1e-9)
    generation = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert generation["suppress_tokens"] == [1, 2] and generation["alignment_heads"] == [[0, 1], [0, 3]]
    assert (generation["no_timestamps_token_id"], generation["decoder_start_token_id"]) == (15, 11)
    assert generation["is_multilingual"] is False and generation["eos_token_id"] == 10


def test_a_quantised_whisper(model: Any, tmp_path: Path) -> None:
    """Each weight differs by at most half a step of its row, which is 1/127 of the largest."""
    write_model(tmp_path, model, "int8")
    with open_whisper(tmp_path) as folder:
        found = transformers.WhisperForConditionalGeneration.from_pretrained(folder).state_dict()
    for name, wanted in model.state_dict().items():
        rows = tuple(range(1, wanted.ndim))
        step = wanted.abs().amax(rows, keepdim=True) / 127 if rows else torch.zeros(1)
        assert ((found[name] - wanted).abs() <= step / 2 + 1e-6).all(), name


@pytest.mark.parametrize("name", ["tokenizer.json", "model.bin"])
def test_what_is_missing_or_damaged_is_named(name: str, model: Any, tmp_path: Path) -> None:
    write_model(tmp_path, model)
    path = tmp_path / name
    if name == "model.bin":
        path.write_bytes(path.read_bytes().replace(b"encoder/conv1/weight", b"encoder/conv9/weight"))
    else:
        path.unlink()
    with pytest.raises(UserError, match=r"has no tokenizer.json|is no Whisper, or damaged"), open_whisper(tmp_path):
        pass
    (tmp_path / "tokenizer.json").write_text("{}")
    if name != "model.bin":
        with pytest.raises(UserError, match=r"tokenizer.json: has no <\|endoftext\|>"), open_whisper(tmp_path):
            pass

"""Recipes with changes of later Transformers: such models train, are saved, load and translate."""

from pathlib import Path
from typing import Any

import pytest
import torch

import headwise
from headwise.pytorch.search.compiled import unsupported_module
from headwise.runtime.native.library import library

MODERN = {"norm": "rms", "norm_position": "pre", "activation": "silu", "gated": True, "biases": False}
SMALL = {"d_model": 32, "d_ff": 40, "n_heads": 4, "n_encoder_layers": 2, "n_decoder_layers": 2}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pairs")
    for language, text in (("en", "a dog runs {} times\n"), ("de", "ein Hund rennt {} mal\n")):
        (folder / f"pairs.{language}").write_text("".join(text.format(n) for n in range(80)), encoding="utf-8")
    return [folder / "pairs.en", folder / "pairs.de"]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("changes", "lacks"),
    [
        (MODERN, ""),
        (MODERN | {"positions": "rotary"}, ""),
        ({"positions": "relative", "activation": "gelu"}, "relative_buckets"),
        ({"positions": "none", "n_kv_heads": 2}, ""),
        ({"normalise_heads": True, "positions": "rotary", "norm": "rms"}, "normalise_heads"),
    ],
    ids=str,
)
def test_a_model_with_other_parts(changes: dict[str, Any], lacks: str, files: list[Path], tmp_path: Path) -> None:
    """In float32 by the library if it supports all parts, otherwise by torch, with a message if int8 was requested."""
    settings = {f"model.{key}": value for key, value in (SMALL | changes).items()}
    settings |= {"train.max_steps": 6, "train.validate_every": 3, "train.validate_bleu": 4, "data.vocab_size": 300}
    model = headwise.train(files, files, tmp_path / "run", "tiny", settings, show=False, device="cpu")
    assert lacks in unsupported_module(model.network)
    assert [translation.text for translation in model.translate(["a dog runs", ""])][1] == ""
    again = headwise.load(tmp_path / "run", "cpu")
    (here,), (there,) = (each.score(["a dog runs 3 times"], ["ein Hund rennt 3 mal"]) for each in (model, again))
    assert here.log_prob == there.log_prob < 0
    if library() is not None and lacks:
        with pytest.raises(headwise.UserError, match=f"lacks a part of this network .*{lacks}"):
            again.translate(["a dog"], compute="int8")


@pytest.mark.skipif(library() is None, reason="packing needs the compiled library")
def test_rotary_positions_are_packed(files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are rotated by their positions in their own sentence: four updates give the same as with padding."""
    settings = {f"model.{key}": value for key, value in (SMALL | MODERN | {"positions": "rotary"}).items()}
    settings |= {"train.max_steps": 4, "train.validate_every": 4, "train.validate_bleu": 0, "model.dropout": 0.0}
    settings |= {"data.vocab_size": 300, "train.batching": "random"}
    packed = headwise.train(files, files, tmp_path / "packed", "tiny", settings, show=False, device="cpu")
    monkeypatch.setattr("headwise.pytorch.training.step.attention_for", lambda *_: None)
    padded = headwise.train(files, files, tmp_path / "padded", "tiny", settings, show=False, device="cpu")
    pairs = zip(packed.network.parameters(), padded.network.parameters(), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)

"""A published model in the format of CTranslate2: the same probabilities of given outputs, family by family."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_families import write_tiny

import headwise
from headwise.core.translate import pad_right
from headwise.errors import UserError
from headwise.pytorch.export.family import pretrained_export
from headwise.pytorch.export.run import export_model
from headwise.runtime.checkpoint.read import read_folder

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "marian": ("marian", {}),
    "opus-mt": ("marian", {"activation_function": "silu", "scale_embedding": True}),
    "m2m": ("m2m", {}),
    "bart": ("marian", {"model_type": "bart"}),
    "mbart": ("marian", {"model_type": "mbart", "scale_embedding": True}),
    "pegasus": ("marian", {"model_type": "pegasus", "activation_function": "relu"}),
    "t5": ("t5", {"num_layers": 2}),
    "t5 with wide heads": ("t5", {"d_kv": 8, "num_heads": 3}),
    "t5 v1.1": ("t5", {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
}
SOURCES = [[40, 41, 42, 43, 2], [50, 51, 2]]
TARGETS = [[60, 61, 62, 63], [70, 71, 72, 73]]


@pytest.mark.parametrize("name", CASES)
def test_probabilities(name: str, tmp_path: Path) -> None:
    library = pytest.importorskip("ctranslate2")
    kind, changes = CASES[name]
    write_tiny(tmp_path / "model", kind, changes)
    export_model(tmp_path / "model", "ctranslate2", tmp_path / "out")
    exported = pretrained_export(read_folder(tmp_path / "model"), "ctranslate2")
    pieces, (src, mask) = exported.pieces, pad_right(SOURCES, 1)
    tgt_in = torch.tensor([[exported.special.bos_id, *target] for target in TARGETS])
    with torch.inference_mode():
        logits = exported.network(src, tgt_in, mask)
    wanted = logits.log_softmax(-1)[:, :-1].gather(2, tgt_in[:, 1:, None]).squeeze(2)
    named = [[[pieces[i] for i in row] for row in rows] for rows in (SOURCES, TARGETS)]
    found = library.Translator(str(tmp_path / "out")).score_batch(*named)
    torch.testing.assert_close(torch.tensor([score.log_probs[:4] for score in found]), wanted, atol=1e-4, rtol=1e-4)


def test_what_is_forced_and_what_is_never_written(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    only = list(range(20, 265))
    write_tiny(tmp_path / "model", "m2m", {}, {"forced_bos_token_id": 5, "bad_words_ids": [[i] for i in only]})
    export_model(tmp_path / "model", "ctranslate2", tmp_path / "out", texts=["A dog"])
    from headwise.pytorch.export import ctranslate2

    exported = pretrained_export(read_folder(tmp_path / "model"), "ctranslate2")
    (found,) = ctranslate2.greedy_by_ctranslate2(exported, tmp_path / "out", ["A dog"])
    assert found == exported.greedy(["A dog"])[0] and found[0] == 5
    assert not set(only) & set(found)
    assert "target_prefix" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    model = headwise.load(tmp_path / "model", "cpu")
    assert model.generate(["A dog"], max_new_tokens=48)[0].tokens == found[1:]


@pytest.mark.parametrize(
    ("kind", "to", "message"),
    [
        ("marian", "onnx", "use `optimum-cli export onnx --model FOLDER OUT`"),
        ("gpt2", "ctranslate2", "is a model of gpt2; this needs an encoder-decoder of text"),
        ("whisper", "ctranslate2", "is a model of whisper; this needs an encoder-decoder of text"),
    ],
)
def test_what_is_not_exported(kind: str, to: str, message: str, tmp_path: Path) -> None:
    write_tiny(tmp_path / "model", kind)
    with pytest.raises(UserError, match=message):
        export_model(tmp_path / "model", to, tmp_path / "out")
    assert not (tmp_path / "out").exists()

"""The order of things: refuse early, write beside, compare, put in place; and what is said when it fails."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_families import write_tiny

from headwise.config.from_recipe import stack_config, transformer_config
from headwise.config.model import TransformerConfig
from headwise.config.settings import from_dict
from headwise.errors import UserError
from headwise.pytorch.checkpoint.imported import write_imported
from headwise.pytorch.export import hf, run
from headwise.pytorch.export.exported import (
    MAX_NEW_TOKENS,
    ExportedModel,
    exported_model,
    has_uneven_heads,
    sample_texts,
)
from headwise.pytorch.export.run import export_model
from headwise.runtime.checkpoint.folder import Folder
from headwise.runtime.checkpoint.manifest import MANIFEST
from headwise.runtime.checkpoint.read import read_folder

MakeModel = Callable[..., Path]


class Copy:
    """A format that writes one file and translates as it is told to."""

    def __init__(self, mistakes: int = 0) -> None:
        self.mistakes = mistakes

    def check(self, exported: object) -> None:
        pass

    def write(self, exported: object, folder: Path, example: str, int8: bool) -> None:
        (folder / "file").write_text(f"{int8} {example}")

    def greedy(self, exported: ExportedModel, folder: Path, texts: list[str]) -> list[list[int]]:
        found = exported.greedy(texts)
        wrong = self.mistakes if "True" in (folder / "file").read_text() else max(self.mistakes - 10, 0)
        return [[9]] * wrong + found[wrong:]


def formats(monkeypatch: pytest.MonkeyPatch, mistakes: int) -> None:
    monkeypatch.setitem(run.FORMATS, "copy", Copy(mistakes))


def test_what_translates_the_same_is_put_in_place(
    make_model: MakeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    formats(monkeypatch, 0)
    report = export_model(make_model(), "copy", tmp_path / "new" / "out", texts=['A "dog"', "  "])
    assert report == "greedy translations of 1 texts are the same"
    assert (tmp_path / "new" / "out" / "file").read_text() == "False A dog"
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out"]


def test_what_translates_otherwise_is_not(
    make_model: MakeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    formats(monkeypatch, 12)
    with pytest.raises(UserError, match=r"2.*8"):
        export_model(make_model(), "copy", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_int8_may_differ_and_says_how_often(
    make_model: MakeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    formats(monkeypatch, 3)
    report = export_model(make_model(), "copy", tmp_path / "out", int8=True)
    assert report == "greedy translations of 8 texts are the same in float32, 5 of them in int8"
    assert (tmp_path / "out" / "file").read_text().startswith("True")


def test_a_place_where_nothing_can_be_written_is_one_line(make_model: MakeModel, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"out: cannot be written \(.*\); name a new folder"):
        export_model(make_model(), "ctranslate2", tmp_path / "file" / "out")


def test_mistakes_are_one_line(make_model: MakeModel, tmp_path: Path) -> None:
    model = make_model()
    (tmp_path / "other").touch()
    for arguments, message in [
        ((model, "onx", tmp_path / "out"), "unknown format 'onx'; did you mean 'onnx'"),
        ((model, "hf", tmp_path / "out", True), "--compute int8 is for ctranslate2 and onnx"),
        ((model, "hf", tmp_path), "exists already"),
        ((tmp_path / "nothing", "hf", tmp_path / "out"), "no such model directory"),
    ]:
        with pytest.raises(UserError, match=message):
            export_model(*arguments)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"positions": "learned"}, "MarianMTModel cannot represent learned positions"),
        (
            {"positions": "rotary"},
            r"rotary positions \(only T5Gemma has them.*model\.positions=sinusoidal.*ctranslate2 or onnx",
        ),
        (
            {"d_k": 4, "positions": "learned"},
            r"learned positions \(.*\) and head counts or sizes that differ between layers",
        ),
        ({"norm_position": "pre", "tied_embeddings": "none"}, "PegasusFor.* cannot represent tied_embeddings = 'none'"),
    ],
)
def test_hf_refuses_what_its_layout_cannot_hold(
    shape: dict[str, object], message: str, make_model: MakeModel, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        export_model(make_model(**shape), "hf", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"d_v": 4}, "head counts or sizes that differ between layers"),
        ({"normalise_heads": True}, "encoder.normalise_heads = True and decoder.normalise_heads = True"),
    ],
)
def test_ctranslate2_refuses_what_it_cannot_hold(
    shape: dict[str, object], message: str, make_model: MakeModel, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=f"CTranslate2 cannot represent {message}$"):
        export_model(make_model(**shape), "ctranslate2", tmp_path / "out")


@pytest.mark.parametrize("to", ["hf", "ctranslate2", "onnx"])
def test_a_missing_library_is_named_with_its_extra(
    to: str, make_model: MakeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("transformers", "ctranslate2", "onnxscript"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    with pytest.raises(UserError, match=rf'pip install "headwise\[{to}\]"'):
        export_model(make_model(), to, tmp_path / "out")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"architecture": "conv"}, "m: a conv model; only Transformers can be exported"),
        ({"task": "classify"}, "m: trained for the task classify; only translation models can be exported"),
    ],
)
def test_other_models_are_refused(changes: dict[str, Any], complaint: str) -> None:
    config = from_dict({"model": changes}, "test")
    with pytest.raises(UserError, match=complaint):
        exported_model(Folder(Path("m"), config, {}, "cpu", SimpleNamespace(network=None), lambda: None))


def test_heads_are_uneven_when_they_have_a_width_or_number_of_their_own() -> None:
    even = TransformerConfig(d_model=16, n_heads=4)
    assert not has_uneven_heads(even) and not has_uneven_heads(TransformerConfig(d_model=16, n_heads=4, d_k=4, d_v=4))
    assert has_uneven_heads(TransformerConfig(d_model=16, n_heads=4, d_v=8))
    assert has_uneven_heads(TransformerConfig(d_model=16, n_heads=4, cross_heads=(4, 3)))


def test_texts_are_words_and_always_the_same(make_model: MakeModel) -> None:
    exported = exported_model(read_folder(make_model()))
    texts = sample_texts(exported.tokenizer)
    assert len(texts) == 8 and texts == sample_texts(exported.tokenizer)
    assert all(word.isalpha() for text in texts for word in text.split())
    assert all(len(found) <= MAX_NEW_TOKENS for found in exported.greedy(texts))


def test_last_piece_is_not_compared() -> None:
    long = list(range(MAX_NEW_TOKENS))
    assert run.count_equal([[*long[:-1], 99], [*long[:-2], 99, 98]], [long, long]) == 1


def test_hf_refuses_axes_that_its_family_cannot_say(
    make_model: MakeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever recipes may ask for one day: read back by the family's own reader it must be the same."""

    def other(c: Any) -> Any:
        return replace(transformer_config(c), encoder=replace(stack_config(c, 2), norm="rms", max_len=9))

    monkeypatch.setattr(hf, "transformer_config", other)
    message = r"model: the layout of MarianMTModel cannot represent encoder.norm = 'rms'$"
    with pytest.raises(UserError, match=message):
        export_model(make_model(), "hf", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("kind", "changes"), [("m2m", {"model_type": "marian"}), ("t5", {}), ("gpt2", {})])
def test_an_imported_family_goes_back_where_it_came_from(kind: str, changes: dict[str, str], tmp_path: Path) -> None:
    """Tensors, configuration and vocabulary as they were; other formats name who writes them."""
    there, ours, back = tmp_path / "there", tmp_path / "ours", tmp_path / "back"
    write_tiny(there, kind, changes)
    write_imported(ours, read_folder(there))
    report = export_model(ours, "hf", back)
    assert report.endswith("tensors are the same when read back")
    found, wanted = load_file(back / "model.safetensors"), load_file(there / "model.safetensors")
    assert found.keys() == wanted.keys() and all(torch.equal(found[key], wanted[key]) for key in wanted)
    assert {path.name for path in back.iterdir()} == {MANIFEST, *(path.name for path in there.iterdir())}
    assert json.loads((back / "config.json").read_text()) == json.loads((there / "config.json").read_text())
    for folder in (there, ours):
        with pytest.raises(UserError, match=r"not for a pretrained \w+ model.*optimum-cli export onnx --model"):
            export_model(folder, "onnx", tmp_path / "out")


@pytest.mark.parametrize("imported", [True, False])
def test_what_the_network_does_not_use_goes_back_too(imported: bool, tmp_path: Path) -> None:
    """Or `transformers` makes a new pooler for a BERT, of random numbers."""
    there, ours, back = tmp_path / "there", tmp_path / "ours", tmp_path / "back"
    write_tiny(there, "bert", {})
    tensors = load_file(there / "model.safetensors")
    prefix = next(iter(tensors)).partition("embeddings.")[0]
    pooler = {f"{prefix}pooler.dense.{part}": torch.randn(size) for part, size in (("weight", (8, 8)), ("bias", (8,)))}
    save_file({**tensors, **pooler}, there / "model.safetensors", {"format": "pt"})
    if imported:
        write_imported(ours, read_folder(there))
    export_model(ours if imported else there, "hf", back)
    found = load_file(back / "model.safetensors")
    assert found.keys() == {*tensors, *pooler}
    assert all(torch.equal(found[key], value) for key, value in {**tensors, **pooler}.items())

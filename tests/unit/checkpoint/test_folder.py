"""Model directories of ours that hold a family's network, and `headwise import`, which makes them."""

import errno
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import headwise
from headwise.cli import main
from headwise.errors import UserError
from headwise.models.model import Model
from headwise.pytorch.checkpoint import imported as imported_checkpoint
from headwise.runtime.checkpoint.layout import is_family

TOKENS = torch.tensor([[3, 1, 4, 1, 5]])


@pytest.fixture
def imported(write: Any, tmp_path: Path) -> Path:
    assert main(["import", str(write("llama")), str(tmp_path / "ours")]) == 0
    return tmp_path / "ours"


def test_import_keeps_the_network(imported: Path, tmp_path: Path) -> None:
    theirs, ours = headwise.load(tmp_path / "llama", "cpu"), headwise.load(imported, "cpu")
    assert isinstance(ours, Model)
    assert torch.equal(theirs.network(TOKENS), ours.network(TOKENS))
    assert (ours.config, ours.hf_config) == (theirs.config, theirs.hf_config)
    assert ours.info()["family"] == "llama"


def test_import_keeps_half_precision(write: Any, tmp_path: Path) -> None:
    folder = write("llama")
    tensors = load_file(folder / "model.safetensors")
    save_file({key: tensor.bfloat16() for key, tensor in tensors.items()}, folder / "model.safetensors")
    assert main(["import", str(folder), str(tmp_path / "ours")]) == 0
    kept = load_file(tmp_path / "ours" / "model.safetensors")
    assert {tensor.dtype for tensor in kept.values()} == {torch.bfloat16}
    theirs, ours = headwise.load(folder, "cpu"), headwise.load(tmp_path / "ours", "cpu")
    assert theirs.network(TOKENS).dtype == torch.float32
    assert torch.equal(theirs.network(TOKENS), ours.network(TOKENS))
    save_file({key: tensor.char() for key, tensor in kept.items()}, tmp_path / "ours" / "model.safetensors")
    with pytest.raises(UserError, match=r"model\.safetensors: .* is int8; only float32"):
        headwise.load(tmp_path / "ours", "cpu")


def test_import_keeps_the_vocabulary(write: Any, tmp_path: Path) -> None:
    folder = write("bert")
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\ndog\n")
    assert main(["import", str(folder), str(tmp_path / "ours")]) == 0
    assert headwise.load(tmp_path / "ours", "cpu").tokenizer.encode("A dog") == [2, 5, 6, 3]


def test_import_says_what_it_was(write: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["import", str(write("gpt2")), str(tmp_path / "ours")])
    assert ": gpt2, 1,976 parameters" in capsys.readouterr().out.replace("\n", " ")


def test_import_overwrites_nothing(write: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "thesis.txt").write_text("the only copy")
    assert main(["import", str(write("gpt2")), str(tmp_path / "ours")]) == 2
    assert "exists already; name another one" in capsys.readouterr().err


def test_an_import_that_fails_leaves_nothing(
    write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tokenizer fits on the disk, the weights do not; afterwards the name is free."""

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    folder = write("gpt2")
    with monkeypatch.context() as patch:
        patch.setattr(imported_checkpoint, "save_file", full)
        assert main(["import", str(folder), str(tmp_path / "new" / "ours")]) == 2
    assert "free some disk space" in capsys.readouterr().err
    assert [*(tmp_path / "new").iterdir()] == []
    (tmp_path / "new" / "ours").mkdir()
    assert main(["import", str(folder), str(tmp_path / "new" / "ours")]) == 0
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["ours"]


def test_import_of_something_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", str(tmp_path), str(tmp_path / "ours")]) == 2
    assert "is no folder in the Hugging Face layout" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("format", 2, "format 2 is not 1"),
        ("family", {"family": "llama", "heads": 3}, "unknown key 'heads'"),
        ("family", {"family": "llama", "decoder": {"rotary": {"speed": 1}}}, "decoder.rotary: unknown key 'speed'"),
    ],
)
def test_a_damaged_configuration(key: str, value: Any, message: str, imported: Path) -> None:
    values = json.loads((imported / "config.json").read_text())
    (imported / "config.json").write_text(json.dumps({**values, key: value}))
    with pytest.raises(UserError, match=message):
        headwise.load(imported, "cpu")


@pytest.mark.parametrize("wrong", [0, -1, -3, 7.5, float("nan"), None, "relu", [1], {}, True])
def test_whatever_a_key_says_it_fits_or_is_refused_in_one_line(wrong: Any, imported: Path) -> None:
    values = json.loads((imported / "config.json").read_text())
    family = values["family"]
    for table, key in [(family, key) for key in family] + [(family["decoder"], key) for key in family["decoder"]]:
        before, table[key] = table[key], wrong
        (imported / "config.json").write_text(json.dumps(values))
        table[key] = before
        try:
            headwise.load(imported, "cpu")
        except UserError as error:
            assert str(error).startswith(str(imported)) and "\n" not in str(error), key


def test_weights_that_do_not_fit(imported: Path) -> None:
    values = json.loads((imported / "config.json").read_text())
    values["family"]["decoder"]["d_ff"] = 13
    (imported / "config.json").write_text(json.dumps(values))
    with pytest.raises(UserError, match=r"not.*config.json: decoder.layers.0.ffn.down_proj.weight"):
        headwise.load(imported, "cpu")


def test_a_model_directory_of_training_is_none(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"format": 1, "model": {}}')
    assert not is_family(tmp_path)
    assert not is_family(tmp_path / "absent")

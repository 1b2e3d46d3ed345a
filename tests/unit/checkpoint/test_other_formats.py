"""Models of other programs are recognised by their content, and the error says what to do."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headwise import cli
from headwise.errors import UserError
from headwise.models.load import load
from headwise.runtime.formats.other_formats import other_format


def opennmt(path: Path) -> None:
    torch.save({"model": {}, "generator": {"weight": torch.zeros(2)}, "vocab": {}}, path)


def fairseq(path: Path) -> None:
    torch.save({"args": None, "model": {}, "optimizer_history": [], "last_optimizer_state": {}}, path)


@pytest.mark.parametrize(
    "name,write,said",
    [
        ("model.pt", opennmt, "a checkpoint of OpenNMT-py or Eole; convert it with ct2-opennmt-py-converter"),
        ("checkpoint_best.pt", fairseq, "a checkpoint of fairseq; convert it with ct2-fairseq-converter"),
    ],
)
def test_a_format_is_recognised(
    name: str, write: Any, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    write(folder / name)
    assert said in other_format(folder / name)
    for path in (folder, folder / name):
        with pytest.raises(UserError, match=said):
            load(path)
        assert cli.main(["import", str(path), str(tmp_path / "out")]) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_other_files_are_not_recognised(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("GGUF is no magic number inside a text")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a", "b")
    assert [other_format(tmp_path / name) for name in ("a.zip", "missing", ".")] == [""] * 3


def test_a_folder_with_another_models_file_names_it(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {"special:model.yml": np.zeros(3, np.int8)}
    for name, kind in (("model.gguf", "a GGUF file of llama.cpp"), ("model.npz", "a model of Marian")):
        file = tmp_path / kind / name
        file.parent.mkdir()
        if name.endswith("npz"):
            np.savez(file, **arrays)
        else:
            file.write_bytes(b"GGUF\x03\0\0\0" + bytes(100))
        for path in (file.parent, file):
            with pytest.raises(UserError, match=rf"{kind}; convert it with: headwise import .*{name}"):
                load(path)

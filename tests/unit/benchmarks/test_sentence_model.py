"""The sentence model of a release: how its archive is split, and what is published."""

import zipfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from safetensors.numpy import load_file

from headwise.runtime.checkpoint.manifest import check_manifest
from headwise.text.files.split import ValidationSize


def test_parts_of_an_archive_share_no_sentence(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "HELD_OUT", ValidationSize("6pairs", pairs=6))
    pairs = [(f"Sentence {n // 2}.", f"Satz {n}.") for n in range(60)]  # every source has two translations
    with zipfile.ZipFile(archive := tmp_path / "deu-eng.zip", "w") as file:
        file.writestr("deu.txt", "".join(f"{src}\t{tgt}\tCC-BY 2.0 (France)\n" for src, tgt in pairs))
    paths = script.parts_of(archive, tmp_path)
    parts = {name: [tuple(line.split("\t")) for line in path.read_text().splitlines()] for name, path in paths.items()}
    assert {name: len(part) for name, part in parts.items()} == {"train": 48, "valid": 6, "test": 6}
    assert sorted(pair for part in parts.values() for pair in part) == sorted(pairs)
    sources = [{src for src, _ in part} for part in parts.values()]
    assert sum(map(len, sources)) == len(set.union(*sources))


def test_a_released_folder_has_half_precision_and_the_licence(script: ModuleType, run: Path, tmp_path: Path) -> None:
    script.release(run, folder := tmp_path / "model")
    assert check_manifest(folder) == ["config.json", "model.safetensors"]
    assert load_file(folder / "model.safetensors")["weight"].dtype == np.float16
    assert "| licence of the data | trained on sentences of [Tatoeba]" in (folder / "README.md").read_text()
    with zipfile.ZipFile(tmp_path / "model.zip") as file:
        names = {name.partition("/")[2] for name in file.namelist() if not name.endswith("/")}
    listed = {"SHA256SUMS", "README.md", "config.json", "generation_config.json", "model.safetensors"}
    assert names == {*listed, "corpus/test.src"}
    assert {*listed, "corpus"} == {path.name for path in folder.iterdir()}

"""The small models of the course: how a text is split, and their page."""

import zipfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from safetensors.numpy import load_file
from tiny_families import write_tiny

from headwise.cli import main
from headwise.config.data import TextData
from headwise.serve.web import page
from headwise.text.files.documents import train_on_documents


def test_the_last_lines_of_a_text_validate_and_none_is_lost(script: ModuleType, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"line {n}\n" for n in range(41)), encoding="utf-8")
    train, valid = (path.read_text(encoding="utf-8") for path in script.split_text(text, tmp_path))
    assert train + valid == text.read_text(encoding="utf-8")
    assert valid == "line 39\nline 40\n"


def test_one_page_has_the_models_and_is_not_too_large(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / name for name in ("dates", "sentences", "characters")]
    for path in paths:
        path.mkdir()
        write_tiny(path, "gpt2")
        train_on_documents(["A dog."], TextData(subword="characters", vocab_size=264)).save(path / "tokenizer.json")
    monkeypatch.setattr(page, "wasm_builds", lambda: {"simd": b""})
    monkeypatch.setattr(script, "command", lambda *words: main([*map(str, words)]))
    (tmp_path / "course.html").write_text("of an earlier run")
    script.write_page(paths, tmp_path / "course.html")
    text = (tmp_path / "course.html").read_text(encoding="utf-8")
    assert [f'data-name="{path.name}"' in text for path in paths] == [True] * 3
    monkeypatch.setattr(script, "LARGEST", len(text) - 1)
    with pytest.raises(SystemExit, match="choose smaller models"):
        script.write_page(paths, tmp_path / "course.html")


def test_a_model_of_your_own_text_gets_no_licence(script: ModuleType, run: Path, tmp_path: Path) -> None:
    script.release(run, tmp_path / "text", licence="")
    assert load_file(tmp_path / "text" / "model.safetensors")["weight"].dtype == np.float16
    assert (tmp_path / "text" / "README.md").read_text() == (run / "README.md").read_text()
    assert zipfile.is_zipfile(tmp_path / "text.zip")

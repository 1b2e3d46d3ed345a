"""The small models of the course: how a text is split, and what is published of a model without a licence."""

import importlib
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from headwise.runtime.checkpoint.manifest import seal

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks"

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the benchmarks are not part of the source distribution")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module("course_models")
    for name in ("course_models", "sentence_model", "machine"):
        sys.modules.pop(name)


def test_the_last_lines_of_a_text_validate_and_none_is_lost(script: ModuleType, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"line {n}\n" for n in range(41)), encoding="utf-8")
    train, valid = (path.read_text(encoding="utf-8") for path in script.split_text(text, tmp_path))
    assert train + valid == text.read_text(encoding="utf-8")
    assert valid == "line 39\nline 40\n"


def test_a_model_of_your_own_text_gets_no_licence(script: ModuleType, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    save_file({"weight": np.float32([[0.1, 2]])}, run / "model.safetensors")
    for name in ("config.json", "generation_config.json"):
        (run / name).write_text("{}")
    (run / "README.md").write_text("| weights | step 9 |\n| made with | Headwise |\n")
    seal(run)
    script.release(run, tmp_path / "text", licence="")
    assert load_file(tmp_path / "text" / "model.safetensors")["weight"].dtype == np.float16
    assert (tmp_path / "text" / "README.md").read_text() == (run / "README.md").read_text()
    assert zipfile.is_zipfile(tmp_path / "text.zip")

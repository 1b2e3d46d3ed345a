"""`make bench-quick` runs every script, and every script knows `--quick`."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

NAME = "benchmarks_quick"
FOLDER = Path(__file__).resolve().parents[3] / "benchmarks"

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the benchmarks are not part of the source distribution")


def quick() -> ModuleType:
    spec = importlib.util.spec_from_file_location(NAME, FOLDER / "quick.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def scripts() -> dict[str, str]:
    """The text of everything that is run, but for `quick.py` and `study.py`, which only copies results."""
    others = ("quick", "study")
    texts = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.py") if path.stem not in others}
    return {name: text for name, text in texts.items() if '__name__ == "__main__"' in text}


def test_every_script_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, NAME, ModuleType(NAME))  # where dataclasses look up what they are written in
    assert set(quick().RUNS) == set(scripts())


def test_every_script_has_the_option() -> None:
    assert not [name for name, text in scripts().items() if not re.search("add_(quick_option|machine_options)", text)]

"""What the tests of scripts in `benchmarks/` share."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from safetensors.numpy import save_file

from headwise.runtime.checkpoint.manifest import seal

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks"


@pytest.fixture
def script(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The script that a test module is named after; `test_a.py` tests `a.py`."""
    if not FOLDER.is_dir():
        pytest.skip("the benchmarks are not part of the source distribution")
    monkeypatch.syspath_prepend(str(FOLDER))
    before = {*sys.modules}
    yield importlib.import_module(request.path.stem.removeprefix("test_"))
    for name in sys.modules.keys() - before:  # other tests have their own modules of these names
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(FOLDER)):
            sys.modules.pop(name)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a trained model with one weight and the corpus it generated, and without a licence."""
    run = tmp_path / "run"
    run.mkdir()
    save_file({"weight": np.float32([[0.1, 2]])}, run / "model.safetensors")
    for name in ("config.json", "generation_config.json", "metrics.jsonl"):
        (run / name).write_text("{}")
    (run / "README.md").write_text("| weights | step 9 |\n| made with | Headwise |\n")
    (run / "corpus").mkdir()
    for name in ("test.src", "train.src"):
        (run / "corpus" / name).write_text("a\n")
    seal(run)
    return run

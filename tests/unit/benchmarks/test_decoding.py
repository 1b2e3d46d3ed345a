"""The contenders on a GPU; the benchmark itself is run by `make bench-quick`, on a CPU."""

import inspect
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

pytest.importorskip("ctranslate2")


def test_all_on_cuda_are_in_float16_on_the_gpu(script: ModuleType, tmp_path: Path) -> None:
    """Their functions take these arguments."""
    assert "ctranslate2 float16" in script.ON_CUDA and "ours float16" in script.ON_CUDA
    for name, arguments in script.ON_CUDA.items():
        make, *given = arguments(tmp_path)
        bound = inspect.signature(make).bind(*given).arguments
        assert (bound["folder"], bound["compute"], bound["device"]) == (tmp_path, "float16", "cuda")
        assert bound.get("library", False) is False  # torch searches
        assert bound.get("captured", True) != name.endswith("not captured")


@pytest.mark.parametrize(("has_cuda", "what"), [(False, "torch found"), (True, "CTranslate2 found")])
def test_without_a_gpu_nothing_is_measured(
    has_cuda: bool, what: str, script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_cuda)
    monkeypatch.setattr("ctranslate2.get_cuda_device_count", lambda: 0)
    monkeypatch.setattr(sys, "argv", ["decoding.py", "--device", "cuda"])
    with pytest.raises(SystemExit, match=f"--device cuda: {what} no CUDA device"):
        script.main()

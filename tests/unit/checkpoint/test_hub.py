"""Names of the hub in the place of folders. No test asks the network."""

import sys
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headwise.errors import UserError
from headwise.runtime.checkpoint.hub import folder_of, known_folder


class Hub:
    """Stands in for the hub's library; `cached` is what its cache holds, and the network is away."""

    def __init__(self, cached: dict[str, str]) -> None:
        self.cached, self.asked = cached, []

    def model_info(self, name: str) -> Any:
        self.asked.append(name)
        raise ConnectionError(name)

    def snapshot_download(self, name: str, local_files_only: bool = False, **_: Any) -> str:
        assert local_files_only
        if name not in self.cached:
            raise FileNotFoundError(name)
        return self.cached[name]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    hub = Hub({"owner/name": "/cache/owner--name"})
    library = SimpleNamespace(model_info=hub.model_info, snapshot_download=hub.snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", library)
    return hub


def test_a_name_is_found_in_the_cache_without_a_network(hub: Hub) -> None:
    assert folder_of("owner/name") == Path("/cache/owner--name")
    assert hub.asked == []


def test_a_mistyped_path_asks_nobody(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    for path in ("runs/absent", "absent", str(tmp_path / "a" / "b"), "../absent"):
        assert folder_of(path) == Path(path)
    assert hub.asked == []


def test_a_name_that_is_nowhere_here_is_one_to_download(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        UserError, match=r"owner/other: no such model directory; .* or write hf:owner/other to download"
    ):
        folder_of("owner/other")
    assert hub.asked == []
    assert known_folder("owner/other") == Path("owner/other")


def test_a_folder_is_itself(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner" / "name").mkdir(parents=True)
    assert folder_of("owner/name") == Path("owner/name")


def test_fetching_falls_back_to_the_cache(hub: Hub) -> None:
    assert folder_of("hf:owner/name") == Path("/cache/owner--name")
    assert hub.asked == ["owner/name"]
    with pytest.raises(UserError, match=r"hf:owner/other.*\(ConnectionError\).*no"):
        folder_of("hf:owner/other")


def test_weights_are_fetched_once_for_each_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the network only as safetensors; a layer behind it may have nothing but an old file."""
    files = ["model.safetensors", "pytorch_model.bin", "1_Pooling/config.json", "2_Dense/pytorch_model.bin"]
    asked: list[list[str]] = []

    def snapshot_download(name: str, allow_patterns: list[str]) -> str:
        asked.append(allow_patterns)
        return "/cache/" + name

    about = SimpleNamespace(siblings=[SimpleNamespace(rfilename=file) for file in files])
    library = SimpleNamespace(model_info=lambda name: about, snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", library)
    assert folder_of("hf:owner/name") == Path("/cache/owner/name")
    fetched = [file for file in files if any(fnmatch(file, pattern) for pattern in asked[0])]
    assert fetched == ["model.safetensors", "1_Pooling/config.json", "2_Dense/pytorch_model.bin"]


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert known_folder("owner/name") == Path("owner/name")
    with pytest.raises(UserError, match=r'pip install "headwise\[hub\]"'):
        folder_of("hf:owner/name")

"""Which files of a model folder the machines of a cluster must have."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from headwise.serve.cluster.folders import ClusterFolder, cluster_folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder with a module and with files that are no part of the model."""
    folder = tmp_path / "model"
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "checkpoints").mkdir()
    modules = '[{"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}]'
    texts = {"modules.json": modules, "1_Pooling/config.json": "{}", "model.safetensors": "weights"}
    for name, text in {**texts, "train.jsonl": "{}", ".lock": "", "checkpoints/step-1": "state"}.items():
        (folder / name).write_text(text)
    return folder


def test_files_of_the_model_and_of_its_modules(model: Path) -> None:
    found = cluster_folder(model, "node")
    assert [name for name, _, _ in found.files] == ["1_Pooling/config.json", "model.safetensors", "modules.json"]
    assert found.on_this_machine() == str(model)
    (model / "train.jsonl").write_text("another line")
    assert cluster_folder(model, "node") == found


def test_a_folder_with_other_contents_of_the_same_size_is_another(model: Path, tmp_path: Path) -> None:
    found = cluster_folder(model, "node")
    other = tmp_path / "other"
    shutil.copytree(model, other)
    copied = replace(found, path=str(other))
    assert copied.digest == found.digest and copied.on_this_machine() == str(other)
    (other / "model.safetensors").write_text("WEIGHTS")
    assert not copied._is_in(other)
    assert cluster_folder(other, "node").digest != found.digest


def test_adapters_are_loaded_from_their_path(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    assert cluster_folder(tmp_path, "node") == ClusterFolder(str(tmp_path), "node", ())

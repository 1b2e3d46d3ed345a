"""The checks of the output folder."""

from pathlib import Path

import pytest
import torch
from saving import save_checkpoint

from headwise.errors import UserError
from headwise.pytorch.tasks.resuming import WEIGHTS, WRITTEN, check_out, mark_started
from headwise.pytorch.training.checkpoint import CHECKPOINTS, STARTED, Checkpoint, remove_old


def save(folder: Path, step: int) -> None:
    """Save a checkpoint like the trainer."""
    save_checkpoint(folder / CHECKPOINTS, Checkpoint({"w": torch.ones(2)}, {}, {"step": step}))
    remove_old(folder / CHECKPOINTS, keep_last=2)


@pytest.mark.parametrize("resume", [False, True])
def test_empty_folders_and_unrelated_files(tmp_path: Path, resume: bool) -> None:
    check_out(tmp_path / "absent", resume)
    (tmp_path / "corpus").mkdir()
    (tmp_path / "train.log").touch()
    check_out(tmp_path, resume)
    assert {path.name for path in tmp_path.iterdir()} == {"corpus", "train.log"}


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize(
    "name", ["README.md", "config.json", "tokenizer.json", "training.json", "metrics.jsonl", "validation.jsonl"]
)
def test_other_files_are_kept(tmp_path: Path, name: str, resume: bool) -> None:
    (tmp_path / name).touch()
    with pytest.raises(UserError, match=f"already has {name}, which a run would replace; name another folder"):
        check_out(tmp_path, resume)


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("weights", ["model.safetensors", "model-1-of-2.safetensors", "adapter_model.safetensors"])
def test_other_models_are_kept(tmp_path: Path, weights: str, resume: bool) -> None:
    (tmp_path / "config.json").touch()
    (tmp_path / weights).touch()
    with pytest.raises(UserError, match=r"holds a model .*name another folder, or move the model away first"):
        check_out(tmp_path, resume)


def test_a_run_can_always_be_resumed(tmp_path: Path) -> None:
    """After being killed at any time, unless all checkpoints are damaged."""
    mark_started(tmp_path)
    for name in (*(path for path in WRITTEN if path != WEIGHTS), "model.safetensors"):
        (tmp_path / name).touch()
        check_out(tmp_path, resume=True)
        with pytest.raises(UserError, match="already holds a run; add --resume to resume it"):
            check_out(tmp_path, resume=False)
    save(tmp_path, 1)
    mark_started(tmp_path)  # of the run that is resumed
    assert not (tmp_path / CHECKPOINTS / STARTED).exists()
    check_out(tmp_path, resume=True)
    (tmp_path / CHECKPOINTS / "step-00000001" / "model.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match="the only checkpoint is damaged"):
        check_out(tmp_path, resume=True)
    save(tmp_path, 0)
    check_out(tmp_path, resume=True)


def test_checkpoints_without_a_config(tmp_path: Path) -> None:
    save(tmp_path, 1)
    with pytest.raises(UserError, match=r"has checkpoints but no config\.json; restore it or name another folder"):
        check_out(tmp_path, resume=True)

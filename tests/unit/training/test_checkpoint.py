"""Checkpoints are complete, damage is detected by checksums, and the previous one is used instead."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event

import pytest
import torch
from safetensors import SafetensorError
from saving import save_checkpoint
from torch import Tensor

from headwise.errors import UserError, WriteError
from headwise.pytorch.training import checkpoint as module
from headwise.pytorch.training.checkpoint import (
    STARTED,
    Checkpoint,
    CheckpointDraft,
    StoredCheckpoint,
    average_parameters,
    checkpoint_paths,
    load_checkpoint,
    newest_undamaged,
    remove_drafts,
    remove_old,
    step_name,
)


def newest_checkpoint(folder: Path, warn: Callable[[str], None]) -> StoredCheckpoint | None:
    return newest_undamaged(folder, load_checkpoint, warn)


def make(step: int) -> Checkpoint:
    shared = torch.randn(3, 4)
    model = {"a": shared, "b": shared[1:], "c": torch.tensor(float(step))}
    training = {"exp_avg.a": torch.randn(4, 3).T, "random.cpu": torch.get_rng_state()}
    return Checkpoint(model, training, {"step": step, "objective": 0.1 + 0.2, "data": {"epoch": 1, "position": 7}})


def save(folder: Path, *steps: int) -> list[Path]:
    return [save_checkpoint(folder, make(step)) for step in steps]


def same(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_round_trip(tmp_path: Path) -> None:
    checkpoint = make(12)
    path = save_checkpoint(tmp_path / "checkpoints", checkpoint)
    loaded = load_checkpoint(path)
    assert path.name == "step-00000012"
    assert same(loaded.model, checkpoint.model)
    assert same(loaded.training, checkpoint.training)
    assert checkpoint.state.items() <= loaded.state.items()
    assert sorted(file.name for file in path.iterdir()) == ["model.safetensors", "state.json", "training.safetensors"]


@pytest.mark.parametrize("size", [2, 3, 5])
def test_rows_of_several_processes_are_one_tensor(tmp_path: Path, size: int) -> None:
    """Of four rows, the last of five processes has none; a scalar is in one file only."""
    whole, scalar = torch.randn(4, 3), torch.tensor(7.0)
    per_rank = -(-4 // size)
    drafts = []
    for rank in range(size):
        model = {"a": whole[rank * per_rank : (rank + 1) * per_rank]} | ({"s": scalar} if rank == 0 else {})
        drafts.append(CheckpointDraft(tmp_path, Checkpoint(model, {}, {"step": 3}), rank, size))
    path = drafts[0].complete({name: value for draft in drafts for name, value in draft.sums().items()})
    assert len([*path.iterdir()]) == size + 1
    stored = load_checkpoint(path).model
    assert same(stored, {"a": whole, "s": scalar})
    assert stored.has_rows("a") and not stored.has_rows("s")
    for first in range(5):
        for count in range(5 - first):
            assert torch.equal(stored.rows("a", first, count), whole[first : first + count])


def test_training_may_change_tensors_while_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, may_write, save_file = Event(), Event(), module.save_file

    def wait(tensors: dict[str, Tensor], path: Path) -> None:
        started.set()
        assert may_write.wait(60)
        save_file(tensors, path)

    monkeypatch.setattr(module, "save_file", wait)
    tensor = torch.ones(3)
    draft = CheckpointDraft(tmp_path, Checkpoint({"a": tensor}, {}, {"step": 1}))
    assert started.wait(60) and not draft.done()
    tensor.zero_()
    assert checkpoint_paths(tmp_path) == []
    may_write.set()
    assert load_checkpoint(draft.complete(draft.sums())).model["a"].tolist() == [1.0, 1.0, 1.0]


def test_a_checkpoint_whose_files_are_on_another_machine_is_not_named(tmp_path: Path) -> None:
    draft = CheckpointDraft(tmp_path, make(3))
    with pytest.raises(WriteError, match=r"does not have model-00002-of-00002\.safetensors; all machines must share"):
        draft.complete({**draft.sums(), "model-00002-of-00002.safetensors": "0"})
    assert checkpoint_paths(tmp_path) == []


def test_all_files_have_the_same_permissions(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    path = save_checkpoint(tmp_path, make(1))
    assert {file.stat().st_mode for file in path.iterdir()} == {(tmp_path / "other").stat().st_mode}


def test_a_step_saved_twice_is_replaced(tmp_path: Path) -> None:
    save(tmp_path, 5)
    checkpoint = make(5)
    assert same(load_checkpoint(save_checkpoint(tmp_path, checkpoint)).model, checkpoint.model)


def test_no_checkpoint_yet(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path / "absent", warn=pytest.fail) is None


def test_the_newest_has_the_highest_step(tmp_path: Path) -> None:
    save(tmp_path, 90, 1000, 200)
    newest = newest_checkpoint(tmp_path, warn=pytest.fail)
    assert newest is not None
    assert newest.state["step"] == 1000


@pytest.mark.parametrize("survives", [0, 1])
def test_a_crash_while_saving_keeps_the_previous_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survives: int
) -> None:
    save(tmp_path, 10)
    save_file, calls = module.save_file, []

    def crash(tensors: dict[str, Tensor], path: Path) -> None:
        calls.append(path)
        if len(calls) > survives:
            path.write_bytes(b"torn")
            raise KeyboardInterrupt
        save_file(tensors, path)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, "save_file", crash)
        save_checkpoint(tmp_path, make(20))
    assert [path.name for path in checkpoint_paths(tmp_path)] == ["step-00000010"]
    newest = newest_checkpoint(tmp_path, warn=pytest.fail)
    assert newest is not None
    assert newest.state["step"] == 10

    (draft,) = tmp_path.glob(".step-*")
    draft.rename(tmp_path / ".step-00000015")  # of an earlier crash
    save(tmp_path, 20)
    remove_old(tmp_path, keep_last=5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000010", "step-00000020"]


def test_a_full_disk_is_an_error_and_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 10)

    def fill(tensors: dict[str, Tensor], path: Path) -> None:
        path.write_bytes(b"what fitted")
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    with monkeypatch.context() as patch:
        patch.setattr(module, "save_file", fill)
        with pytest.raises(WriteError) as caught:
            save(tmp_path, 20)
    remove_drafts(tmp_path)
    expected = f"{tmp_path / 'step-00000020'}: cannot be written (No space left on device); free some disk space"
    assert str(caught.value) == expected
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000010"]
    load_checkpoint(tmp_path / "step-00000010")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def replaced(path: Path) -> None:
    path.write_text("[]", encoding="utf-8")


@pytest.mark.parametrize("damage", [flip, cut, empty, replaced, Path.unlink])
@pytest.mark.parametrize("name", ["model.safetensors", "training.safetensors", "state.json"])
def test_a_damaged_checkpoint_is_skipped_with_a_message(
    tmp_path: Path, damage: Callable[[Path], None], name: str
) -> None:
    save(tmp_path, 10, 20)
    damage(tmp_path / "step-00000020" / name)
    warnings: list[str] = []
    newest = newest_checkpoint(tmp_path, warnings.append)
    assert newest is not None
    assert newest.state["step"] == 10
    assert len(warnings) == 1
    assert "damaged" in warnings[0]
    assert "step-00000020" in warnings[0]


@pytest.mark.parametrize("key", ["step", "objective"])
def test_a_changed_counter_is_damage(tmp_path: Path, key: str) -> None:
    (path,) = save(tmp_path, 10)
    state = json.loads((path / "state.json").read_text(encoding="utf-8"))
    (path / "state.json").write_text(json.dumps({**state, key: state[key] + 1}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"state\.json: checksum does not match"):
        load_checkpoint(path)


def test_all_checkpoints_damaged(tmp_path: Path) -> None:
    for path in save(tmp_path, 10, 20):
        empty(path / "state.json")
    with pytest.raises(UserError, match=r"all 2 checkpoints are damaged \(.*step-00000020.*restore one from a backup"):
        newest_checkpoint(tmp_path, warn=pytest.fail)


def test_the_first_checkpoint_removes_the_started_marker(tmp_path: Path) -> None:
    (tmp_path / STARTED).touch()
    save(tmp_path, 1)
    remove_old(tmp_path, keep_last=2)
    assert not (tmp_path / STARTED).exists()


def test_copies_by_the_user_are_neither_read_nor_deleted(tmp_path: Path) -> None:
    """Beside checkpoints and inside one; of one on another disk only the link is deleted."""
    saved = make(3)
    save(tmp_path, 1, 2)
    save_checkpoint(tmp_path, saved)
    newest, oldest = tmp_path / "step-00000003", tmp_path / "step-00000001"
    copies = [
        tmp_path / name for name in ("step-00000003.bak", "step-1", "step-00000003 copy", "step-best", ".step-mine")
    ]
    for copy in copies:
        shutil.copytree(newest, copy)
    shutil.copy(newest / "model.safetensors", newest / "model-before.safetensors")
    (tmp_path / "step-00000004").touch()
    moved = oldest.rename(tmp_path / "moved")
    oldest.symlink_to(moved, target_is_directory=True)
    assert [path.name for path in checkpoint_paths(tmp_path)] == ["step-00000001", "step-00000002", "step-00000003"]
    assert same(load_checkpoint(newest).model, saved.model)
    remove_old(tmp_path, 1)
    assert checkpoint_paths(tmp_path) == [newest] and all(path.is_dir() for path in (*copies, moved))


def test_nine_digits_follow_eight(tmp_path: Path) -> None:
    names = [step_name(step) for step in (99_999_999, 100_000_000)]
    for name in names:
        (tmp_path / name).mkdir()
    assert [path.name for path in checkpoint_paths(tmp_path)] == names


def test_old_checkpoints_are_removed(tmp_path: Path) -> None:
    save(tmp_path, 1, 2, 3, 4, 5)
    remove_old(tmp_path, keep_last=2)
    assert [path.name[-1] for path in checkpoint_paths(tmp_path)] == ["4", "5"]


def test_the_average_is_the_mean_summed_in_float64() -> None:
    models = [{"w": torch.tensor([value, 2 * value])} for value in (1.0, 2.0, 6.0)]
    assert average_parameters(models)["w"].tolist() == [3.0, 6.0]
    tiny = [{"w": torch.tensor([value])} for value in (1e8, 1.0, -1e8, 2.0)]  # in float32 the ones are lost
    mean = average_parameters(tiny)["w"]
    assert mean.dtype == torch.float32
    assert mean.item() == 0.75

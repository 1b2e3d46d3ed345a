"""What a resumed run may change."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from saving import save_checkpoint

from headwise.config.data import TranslationData
from headwise.config.settings import RunConfig
from headwise.config.training import TrainConfig
from headwise.errors import UserError
from headwise.pytorch.tasks.job import TrainRequest
from headwise.pytorch.tasks.resuming import added_files, check_add, check_resumed, with_all_batches
from headwise.pytorch.training.checkpoint import CHECKPOINTS, Checkpoint
from headwise.runtime.checkpoint.model_card import model_card
from headwise.runtime.checkpoint.trained import read_run, write_settings

ABOUT: dict[str, Any] = {"recipe": "run", "headwise": "1", "torch": "2", "python": "3"}
ABOUT["corpus"] = {"key": "a", "train": ["t"], "valid": ["v"], "pairs": 1, "dropped": {}}


def started(folder: Path, accumulate: int, tokens: int = 600, ranks: int = 1, **train: Any) -> RunConfig:
    """The settings of a run by this many processes, in its folder."""
    return resumed(folder, False, accumulate, tokens, ranks, **train)


def resumed(folder: Path, resume: bool, accumulate: int, tokens: int, ranks: int, **train: Any) -> RunConfig:
    request = TrainRequest("run", [], [], str(folder), resume=resume)
    asked = RunConfig(train=TrainConfig(accumulate=accumulate, tokens_per_batch=tokens, **train))
    config, entries = with_all_batches(request, asked, folder, ranks)
    about = {**ABOUT, **entries}
    if resume:
        about["changes"] = check_resumed(request, config, about, folder)
    write_settings(folder, config, None, about)
    return config


def batches(config: RunConfig) -> tuple[int, int]:
    return config.train.accumulate, config.train.tokens_per_batch


@pytest.mark.parametrize(
    ("first", "then", "expected"),
    [
        ((1, 600, 1), (1, 600, 1), (1, 600)),
        ((1, 600, 1), (1, 600, 2), (2, 300)),  # as many tokens
        ((1, 600, 1), (1, 600, 3), (3, 200)),
        ((4, 600, 1), (4, 600, 2), (4, 600)),
        ((3, 600, 1), (3, 600, 2), (3, 600)),  # ranks may have different numbers of batches
        ((2, 600, 2), (2, 600, 1), (4, 600)),  # the same command
        ((2, 600, 2), (4, 600, 1), (4, 600)),  # the total
        ((2, 600, 2), (2, 600, 4), (4, 600)),
        ((2, 600, 2), (2, 600, 8), (8, 300)),
        ((4, 600, 1), (8, 300, 1), (8, 300)),  # requested
        ((4, 600, 1), (2, 300, 4), (8, 300)),
        ((4, 600, 1), (1, 600, 1), (1, 600)),
    ],
)
def test_a_resumed_run_keeps_the_tokens_of_an_update(
    first: tuple[int, int, int], then: tuple[int, int, int], expected: tuple[int, int], tmp_path: Path
) -> None:
    started(tmp_path, *first)
    assert batches(resumed(tmp_path, True, *then)) == expected
    assert batches(resumed(tmp_path, True, *then)) == expected  # again
    assert batches(read_run(tmp_path)[0]) == expected


def test_sharded_processes_have_equally_many_batches(tmp_path: Path) -> None:
    started(tmp_path, 3, 600)
    assert batches(resumed(tmp_path, True, 3, 600, 2, shard="full")) == (4, 450)
    assert batches(resumed(tmp_path, True, 3, 600, 1)) == (4, 450)  # the plan of the run
    assert batches(resumed(tmp_path, True, 3, 600, 4, shard="full")) == (4, 450)


def test_changes_are_reported_and_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    started(tmp_path, 1)
    resumed(tmp_path, True, 1, 600, 1, log_every=7)
    assert not capsys.readouterr().err
    assert read_run(tmp_path)[1]["changes"] == []  # there is no checkpoint, so the run starts again
    save_checkpoint(tmp_path / CHECKPOINTS, Checkpoint({"w": torch.ones(2)}, {}, {"step": 40}))
    resumed(tmp_path, True, 1, 600, 2, log_every=7, shard="full", recompute=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "an update has 2 batches of 300 tokens, before 1 of 600: as many tokens; this epoch is planned anew, so it "
        "repeats some examples and omits others",
        "train.recompute was False, now True: results stay the same",
        "train.shard was 'none', now 'full': rounding and dropout differ from here on",
    ]
    save_checkpoint(tmp_path / CHECKPOINTS, Checkpoint({"w": torch.ones(2)}, {}, {"step": 50}))
    config = resumed(tmp_path, True, 6, 300, 2, log_every=7, recompute=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == (
        "an update has 12 batches of 300 tokens, before 2 of 300: 6 times the tokens, with the same learning rate"
    )
    about = read_run(tmp_path)[1]
    rows = model_card(config, about, 1, {}, "step 60", "").splitlines()
    assert (
        "| changes | after step 40: train.recompute = True instead of False, train.shard = full instead of none, "
        "train.accumulate = 2 instead of 1, train.tokens_per_batch = 300 instead of 600, ranks = 2 instead of 1; "
        "after step 50: train.shard = none instead of full, train.accumulate = 12 instead of 2 |"
    ) in rows


def test_a_diverged_run_may_be_rescued(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By what the message about divergence suggests, with a line for each."""
    started(tmp_path, 1)
    save_checkpoint(tmp_path / CHECKPOINTS, Checkpoint({"w": torch.ones(2)}, {}, {"step": 40}))
    rescue: dict[str, Any] = {"learning_rate": 0.5, "warmup_steps": 9, "clip_norm": 1.0, "precision": "bf16"}
    resumed(tmp_path, True, 1, 600, 1, **rescue)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" was ")[0] for line in lines] == [f"train.{name}" for name in rescue]
    changes = read_run(tmp_path)[1]["changes"]
    assert {change["name"]: change["now"] for change in changes} == {f"train.{k}": v for k, v in rescue.items()}


def test_other_settings_must_be_those_of_the_run(tmp_path: Path) -> None:
    config = started(tmp_path, 1)
    request = TrainRequest("run", [], [], str(tmp_path), resume=True)
    other = replace(config, train=replace(config.train, r_drop=0.5))
    with pytest.raises(UserError, match=r"train\.r_drop.*0\.0.*0\.5.*run's --set"):
        check_resumed(request, other, ABOUT, tmp_path)


def data(*files: str) -> dict[str, Any]:
    """The entries of config.json for these training files."""
    return {**ABOUT, "corpus": {**ABOUT["corpus"], "train": [*files], "key": " ".join(files)}}


@pytest.mark.parametrize(
    ("run", "train", "add", "expected"),
    [
        ("a", "a", "b", ["b"]),
        ("a", "a", "b c", ["b", "c"]),
        ("a b", "a b", "c", ["c"]),
        ("a b", "a", "b", []),  # the same command again
        ("a b", "a", "b c", ["c"]),  # one more file
        ("a b", "a b", "", []),
        ("a", "a b", "", []),
        ("a", "a b", "c", []),  # b is not said to be new
        ("x", "a", "b", []),
        ("a b c", "a", "b", []),
    ],
)
def test_added_files_are_those_that_the_run_does_not_have(
    run: str, train: str, add: str, expected: list[str], tmp_path: Path
) -> None:
    config = RunConfig(data=TranslationData(weights=(1.0,)))
    write_settings(tmp_path, config, None, data(*run.split()))
    files = [*train.split(), *add.split()]
    request = TrainRequest("run", [f"folder/{name}" for name in files], [], "", resume=True, add=add.split())
    made: list[tuple[TrainRequest, RunConfig]] = []

    def make(request: TrainRequest, config: RunConfig, folder: Path) -> Any:
        made.append((request, config))
        return SimpleNamespace(about=data(*(Path(name).name for name in request.train)))

    new = replace(config, data=TranslationData(weights=(1.0, 2.0)))
    assert added_files(request, new, tmp_path, make) == expected
    if expected:
        assert [Path(name).name for name in made[0][0].train] == run.split()
        assert made[0][0].first_files == request.first_files and not made[0][0].show
        assert made[0][1] == config  # the weights of the run


def test_added_files_are_reported_and_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = started(tmp_path, 1)
    request = TrainRequest("run", [], [], str(tmp_path), resume=True)
    now = {**ABOUT, "corpus": {**ABOUT["corpus"], "key": "b"}}
    assert check_resumed(request, config, now, tmp_path, ["more.tsv"]) == []
    assert capsys.readouterr().err == "adding more.tsv to the training files\n"
    save_checkpoint(tmp_path / CHECKPOINTS, Checkpoint({"w": torch.ones(2)}, {}, {"step": 40}))
    changes = check_resumed(request, config, now, tmp_path, ["more.tsv"])
    assert changes == [{"step": 40, "added": ["more.tsv"]}]
    assert "to the training files: this epoch is planned anew, so it repeats" in capsys.readouterr().err
    ended = replace(config, train=replace(config.train, max_steps=40))
    with pytest.raises(UserError, match=r"more.tsv.*train.max_steps = 40"):
        check_resumed(request, ended, now, tmp_path, ["more.tsv"])
    with pytest.raises(UserError, match=r"the training files differ from those of the run \(t\)$"):
        check_resumed(request, config, now, tmp_path)


def test_only_some_runs_get_more_files() -> None:
    request = TrainRequest("run", ["a", "b"], [], "", resume=True, add=["b"])
    check_add(request, RunConfig())
    check_add(replace(request, resume=False, add=[]), RunConfig())
    for other, message in (
        (replace(request, resume=False), "--add is for a run that --resume continues"),
        (replace(request, alignments="links"), "--add does not go with --alignments"),
    ):
        with pytest.raises(UserError, match=message):
            check_add(other, RunConfig())

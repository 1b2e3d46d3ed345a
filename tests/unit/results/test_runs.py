"""Which runs are one model."""

from pathlib import Path
from typing import Any

import pytest

from headwise.cli import main
from headwise.errors import UserError
from headwise.lab.results.runs import group_runs, other_differences, read_runs


def grouped(runs: Any, **patterns: str) -> dict[str, list[str]]:
    return {group.name: [run.name for run in group.runs] for group in group_runs(runs, patterns)}


def test_runs_that_differ_in_the_seed_alone_are_one_model(make_run: Any) -> None:
    runs = [
        make_run("tiny-1", seed=1),
        make_run("wide-seed1", seed=1, d_model=32),
        make_run("tiny-2", seed=2),
        make_run("wide-seed2", seed=2, d_model=32),
        make_run("more-2", seed=2, corpus="another"),
        make_run("longer", seed=1, max_steps=7),
    ]
    assert grouped(runs) == {
        "tiny": ["tiny-1", "tiny-2"],
        "wide": ["wide-seed1", "wide-seed2"],
        "more-2": ["more-2"],
        "longer": ["longer"],
    }


@pytest.mark.parametrize(
    ("names", "expected"),
    [(["a_s1", "a_s2"], "a"), (["10", "11"], "10"), (["a", "b"], "a"), (["run.1", "run.12"], "run")],
)
def test_a_model_is_called_what_its_runs_are_without_their_seeds(
    make_run: Any, names: list[str], expected: str
) -> None:
    assert list(grouped([make_run(name, seed=seed) for seed, name in enumerate(names)])) == [expected]


def test_two_models_of_one_name_are_told_apart(make_run: Any) -> None:
    runs = [make_run(f"t-{n}", seed=n, d_model=16 if n < 3 else 32) for n in range(1, 5)]
    assert grouped(runs) == {"t": ["t-1", "t-2"], "t-3": ["t-3", "t-4"]}


def test_names_can_say_what_belongs_together(make_run: Any) -> None:
    runs = [make_run("a-1"), make_run("b", d_model=32), make_run("a-2", d_model=64), make_run("c")]
    assert grouped(runs, both="a-*") == {"both": ["a-1", "a-2"], "b": ["b"], "c": ["c"]}
    with pytest.raises(UserError, match="--group no=z-\\*: no run has such a name: a-1, b"):
        group_runs(runs, {"no": "z-*"})


def test_differences_besides_the_network_are_listed(make_run: Any) -> None:
    tiny = [make_run(f"tiny-{n}", seed=n, batching="random", log_every=n) for n in (1, 2)]
    same = make_run("same", d_model=32, batching="random")
    other = make_run("other", d_model=32, batching="bucketed", clip_norm=1.0, corpus="another")
    assert other_differences(group_runs([*tiny, same], {})) == []
    assert other_differences(group_runs([*tiny, same, other], {})) == [
        "train.batching (random, bucketed)",
        "train.clip_norm (0.0, 1.0)",
        "training data",
    ]


def test_updates_that_follow_from_minutes_are_no_setting(make_run: Any) -> None:
    runs = [make_run("a", minutes=5.0, max_steps=14_000), make_run("b", minutes=5.0, max_steps=7, clip_norm=1.0)]
    assert other_differences(group_runs(runs, {})) == []  # one setting is what is compared


def test_the_command_warns_of_them(make_run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    log = [{"step": 1, "loss": 1.0, "best": True}]
    runs = make_run("a", log=log), make_run("b", d_model=32, clip_norm=1.0, log=log)
    assert main(["results", *(str(run.path) for run in runs)]) == 0
    assert "warning: the runs also differ in train.clip_norm (0.0, 1.0)" in capsys.readouterr().err


def test_one_setting_is_what_is_compared(make_run: Any) -> None:
    runs = [make_run("a"), make_run("b", clip_norm=1.0)]
    assert other_differences(group_runs(runs, {})) == []
    runs.append(make_run("c", r_drop=1.0))
    assert other_differences(group_runs(runs, {})) == ["train.clip_norm (0.0, 1.0)", "train.r_drop (0.0, 1.0)"]


def test_a_run_counts_once_and_folders_of_one_name_by_their_paths(make_run: Any, tmp_path: Path) -> None:
    make_run("x/model")
    make_run("y/model", d_model=32)
    paths = [str(tmp_path / name / "model") for name in "xy"]
    assert [run.name for run in read_runs(paths)] == paths
    with pytest.raises(UserError, match="is named twice"):
        read_runs([paths[0], f"{tmp_path}/y/../x/model"])

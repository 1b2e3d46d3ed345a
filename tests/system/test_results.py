"""The `results` command: comparing runs."""

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from headwise.lock import locked
from headwise.runtime.checkpoint.manifest import seal


@pytest.fixture(scope="module")
def test_set(tmp_path_factory: pytest.TempPathFactory, task: Any, write: Any) -> list[Path]:
    return write(tmp_path_factory.mktemp("test") / "set", task(25, 4))


@pytest.fixture
def runs(model_path: Path, tmp_path: Path) -> list[Path]:
    """The shared model as three runs: two seeds, and one with slightly different weights."""
    paths = [tmp_path / name for name in ("copy-1", "copy-2", "noisy")]
    for seed, path in enumerate(paths, start=1):
        shutil.copytree(model_path, path, ignore=shutil.ignore_patterns("checkpoints"))
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
        config["train"]["seed"] = seed
        config["train"]["max_steps"] += seed // 3
        (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
        seal(path, again=True)
    spoil(paths[2])
    return paths


def spoil(path: Path) -> None:
    """Replace a model by another one."""
    weights = load_file(path / "model.safetensors")
    rng = np.random.default_rng(0)
    noisy = {name: value + 0.25 * rng.normal(size=value.shape) * value.std() for name, value in weights.items()}
    save_file({name: value.astype(np.float32) for name, value in noisy.items()}, path / "model.safetensors")
    seal(path, again=True)


def kept(run: Path) -> list[Path]:
    return sorted((run / "hypotheses").glob("*.txt"))


def rows(out: str) -> dict[tuple[str, str], dict[str, str]]:
    return {(row["model"], row["metric"]): row for row in csv.DictReader(io.StringIO(out))}


def test_scores_are_those_of_evaluate_and_hypotheses_are_kept(
    runs: list[Path], test_set: list[Path], cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, reference = test_set
    command = ["results", *runs, "--test", "news", source, reference, "--metric", "BLEU", "TER"]
    ran = cli(*command, "--format", "csv", "--baseline", "noisy")
    assert (ran.code, ran.err.count("translating news, 25 lines")) == (0, 3)
    table = rows(ran.out)
    for run, name in ((runs[0], "copy"), (runs[2], "noisy")):
        report = json.loads(cli("evaluate", run, "--source", source, "--reference", reference, "--format", "json").out)
        for metric in ("BLEU", "TER"):
            assert float(table[name, metric]["mean"]) == pytest.approx(report[metric]["score"])
            assert table[name, metric]["signature"] == report[metric]["signature"]
    assert (table["copy", "BLEU"]["runs"], float(table["copy", "BLEU"]["deviation"])) == ("2", 0.0)
    assert float(table["copy", "BLEU"]["p_value"]) < 0.05
    assert table["noisy", "BLEU"]["p_value"] == ""

    (hypotheses,) = kept(runs[2])
    scored = json.loads(cli("evaluate", "--hypothesis", hypotheses, "--reference", reference, "--format", "json").out)
    assert scored["BLEU"]["score"] == pytest.approx(float(table["noisy", "BLEU"]["mean"]))
    assert json.loads(hypotheses.with_suffix(".json").read_text(encoding="utf-8"))["decoding"]["beam_size"] == 5

    monkeypatch.setattr("headwise.models.load.load_translator", lambda *_: pytest.fail("a model was loaded again"))
    again = cli(*command, "--format", "csv", "--baseline", "noisy")
    assert (again.out, again.err) == (ran.out, "")


def test_another_model_text_or_setting_is_translated_again(
    runs: list[Path], test_set: list[Path], cli: Any, tmp_path: Path
) -> None:
    source, reference = test_set
    command = ["results", runs[0], "--metric", "BLEU", "--format", "csv", "--test", "news"]
    before = cli(*command, source, reference).out
    assert len(kept(runs[0])) == 1
    cli(*command, source, reference, "--beam-size", 1)
    assert len(kept(runs[0])) == 2
    cli(*command, reference, reference)  # a copy of the source, under another name: the same text
    assert len(kept(runs[0])) == 2
    other = tmp_path / "other.txt"
    other.write_text(source.read_text(encoding="utf-8").replace("a", "b"), encoding="utf-8")
    cli(*command, other, reference)
    assert len(kept(runs[0])) == 3
    spoil(runs[0])
    ran = cli(*command, source, reference)
    assert len(kept(runs[0])) == 4
    assert ran.out != before
    for path in kept(runs[0]):
        path.write_text("half of it\n", encoding="utf-8")
    assert cli(*command, source, reference).out == ran.out


def test_the_table_as_text(runs: list[Path], test_set: list[Path], cli: Any, tmp_path: Path) -> None:
    ran = cli("results", *runs, "--test", "news", *test_set, "-o", tmp_path / "table.md")
    assert (ran.code, ran.out) == (0, "")
    lines = (tmp_path / "table.md").read_text(encoding="utf-8").splitlines()
    assert [cell.strip() for cell in lines[0].split("|")[1:-1]] == ["model", "runs", "news BLEU", "news chrF++"]
    assert lines[2].startswith("| copy  |    2 |")
    assert lines[-1] == "- beam 5, length penalty 0.6"


def test_without_a_test_set_the_table_is_about_validation(runs: list[Path], cli: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    ran = cli("results", *runs, "--curves", tmp_path / "curves.svg", "--axis", "hours")
    assert [cell.strip() for cell in ran.lines[0].split("|")[1:-1]][2:] == [
        "validation BLEU",
        "validation loss",
        "updates",
        "hours",
    ]
    picture = (tmp_path / "curves.svg").read_text(encoding="utf-8")
    assert picture.startswith("<?xml") and "hours of training" in picture
    assert ran.err == f"{tmp_path / 'curves.svg'}: learning curves of 3 runs\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux")
def test_a_full_disk_leaves_the_table(runs: list[Path], cli: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    curves = tmp_path / "curves.svg"
    curves.symlink_to("/dev/full")
    ran = cli("results", *runs, "--curves", curves)
    assert ran.code == 2 and ran.out == cli("results", *runs).out
    assert f"--curves {curves}: cannot be written (No space left on device)" in ran.err


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        (["--test", "news", "SRC"], "write NAME=SOURCE REFERENCE"),
        (["--test", "a/b", "SRC", "SRC"], "files are named after NAME"),
        (["--test", "n", "SRC", "SRC", "--test", "n", "SRC", "SRC"], "two test sets have this name"),
        (["--test", "n", "SRC", "SRC", "--baseline", "nobody"], "unknown baseline 'nobody'"),
        (["--test", "n", "SRC", "SRC", "--metric", "bleu"], "unknown metric 'bleu'"),
        (["--group", "a"], "write ROW=PATTERN"),
        (["--group", "a=z*"], "no run has such a name"),
        (["--curves", "a.pdf"], "name a .png or .svg file"),
    ],
)
def test_errors_of_results(extra: list[str], expected: str, model_path: Path, test_set: list[Path], cli: Any) -> None:
    given = [str(test_set[0]) if part == "SRC" else part for part in extra]
    assert expected in cli("results", model_path, *given).complaint
    assert not (model_path / "hypotheses").exists()


def test_a_run_without_a_model_is_refused(runs: list[Path], test_set: list[Path], cli: Any) -> None:
    (runs[0] / "model.safetensors").unlink()
    assert "has no model.safetensors yet" in cli("results", *runs, "--test", "n", *test_set).complaint


def test_runs_that_are_still_training_are_left_out_and_named(runs: list[Path], test_set: list[Path], cli: Any) -> None:
    alone = cli("results", runs[1], runs[2])
    tested = cli("results", runs[1], runs[2], "--test", "news", *test_set)
    with locked(runs[0]):
        ran = cli("results", *runs)
        assert (ran.out, ran.err) == (alone.out, "headwise: left out because they are still training: copy-1\n")
        assert cli("results", *runs, "--test", "news", *test_set).out == tested.out != alone.out
        assert "copy-1: still training, so there are no results yet" in cli("results", runs[0]).complaint
    assert cli("results", *runs).err == ""


def test_a_test_set_may_be_a_file_of_pairs(runs: list[Path], test_set: list[Path], cli: Any, tmp_path: Path) -> None:
    sources, targets = (path.read_text(encoding="utf-8").splitlines() for path in test_set)
    pairs = tmp_path / "set.tsv"
    pairs.write_text("".join(map("{}\t{}\n".format, sources, targets)), encoding="utf-8")
    by_files = cli("results", runs[0], "--test", "news", *test_set)
    assert cli("results", runs[0], "--test", "news", pairs).out == by_files.out and len(kept(runs[0])) == 1
    assert (
        "write NAME=SOURCE REFERENCE, or NAME=FILE for a file of pairs"
        in cli("results", runs[0], "--test", "news", test_set[0]).complaint
    )
    by_files = cli("evaluate", runs[0], "--source", test_set[0], "--reference", test_set[1])
    assert by_files.code == 0 and cli("evaluate", runs[0], "--source", pairs).out == by_files.out
    (hypotheses,) = kept(runs[0])
    scored = [cli("evaluate", "--hypothesis", hypotheses, "--reference", path) for path in (test_set[1], pairs)]
    assert scored[0].code == 0 and scored[0].out == scored[1].out

"""`--valid 1%`: one file for training and validation, exact splits in resumed runs, and a record in the model."""

import json
from pathlib import Path
from typing import Any

import pytest

SETTINGS = ["model.d_model=16", "model.d_ff=32", "train.tokens_per_batch=300", "train.threads=1", "data.vocab_size=275"]
STEPS = ["train.log_every=1", "train.checkpoint_every=3", "train.validate_every=6", "train.validate_bleu=0"]


@pytest.fixture
def command(tmp_path: Path, task: Any) -> list[str]:
    path = tmp_path / "all.tsv"
    path.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in task(300, 1)), encoding="utf-8")
    return ["train", "--recipe", "tiny", "--train", str(path), "--device", "cpu", "--set", *SETTINGS, *STEPS]


def losses(out: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def test_a_run_is_resumed_exactly(command: list[str], cli: Any, tmp_path: Path) -> None:
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    ran = cli(*command, "train.max_steps=12", "--valid", "5%", "--out", whole)
    assert ran.code == 0, ran.err
    assert "validating on 15 pairs held out of the training files (5%); dropped " in ran.err
    assert cli(*command, "train.max_steps=6", "--valid", "5%", "--out", parted).code == 0
    ran = cli(*command, "train.max_steps=12", "--valid", "5%", "--out", parted, "--resume")
    assert ran.code == 0, ran.err
    assert "resuming after step 6" in ran.err
    assert losses(parted) == losses(whole)
    assert (parted / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    again = cli(*command, "train.max_steps=12", "--valid", "15pairs", "--out", whole, "--resume", "--seed", "1")
    assert again.code == 0, again.err  # the same pairs, however the size is given
    other = cli(*command, "train.max_steps=12", "--valid", "9%", "--out", whole, "--resume")
    assert "the training files differ from those of the run" in other.complaint


def test_the_model_records_the_split(command: list[str], cli: Any, tmp_path: Path) -> None:
    out = tmp_path / "model"
    assert cli(*command, "train.max_steps=1", "--valid", "20pairs", "--seed", "7", "--out", out).code == 0
    corpus = json.loads((out / "config.json").read_text(encoding="utf-8"))["corpus"]
    assert corpus["valid"] == ["20pairs"]
    assert corpus["held_out"]["taken"] == 20
    assert corpus["pairs"] + corpus["held_out"]["dropped"] == 280
    assert "20pairs of the training files, taken out of them" in (out / "README.md").read_text(encoding="utf-8")


def test_a_classifier_has_no_text_twice(cli: Any, tmp_path: Path) -> None:
    path, out = tmp_path / "all.tsv", tmp_path / "model"
    rows = [f"text number {i % 80}\t{'even' if i % 2 == 0 else 'odd'}\n" for i in range(100)]
    path.write_text("".join(rows), encoding="utf-8")
    run = ["train", "--task", "classify", "--recipe", "classify", "--train", path, "--valid", "10%", "--out", out]
    ran = cli(*run, "--device", "cpu", "--set", *SETTINGS, "train.max_steps=2")
    assert ran.code == 0, ran.err
    corpus = json.loads((out / "config.json").read_text(encoding="utf-8"))["corpus"]
    assert corpus["held_out"] == {"taken": 10, "dropped": 0}
    assert corpus["texts"] == 90


def test_links_belong_to_the_files_before_the_split(command: list[str], cli: Any, task: Any, tmp_path: Path) -> None:
    links = tmp_path / "links"
    links.write_text("".join("0-0\n" for _ in task(300, 1)), encoding="utf-8")
    weight = ["train.max_steps=1", "train.alignment_weight=0.05"]
    ran = cli(*command, *weight, "--valid", "5%", "--alignments", links, "--out", tmp_path / "model")
    assert ran.code == 0, ran.err


def test_a_series_is_not_split_at_random(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a\n1\n", encoding="utf-8")
    run = [
        "train",
        "--task",
        "forecast",
        "--recipe",
        "forecast",
        "--train",
        tmp_path / "x.csv",
        "--out",
        tmp_path / "m",
    ]
    assert "--valid 20%: for a time series, set data.valid_share instead" in cli(*run, "--valid", "20%").complaint

"""`--valid 1%`: one file for training and validation, exact splits in resumed runs, and a record in the model."""

import json
import resource
from pathlib import Path
from typing import Any

import pytest

SETTINGS = ["model.d_model=16", "model.d_ff=32", "train.tokens_per_batch=300", "train.threads=1", "data.vocab_size=275"]
PARTS = ("train", "valid", "test")
STEPS = ["train.log_every=1", "train.checkpoint_every=3", "train.validate_every=6", "train.validate_bleu=0"]


@pytest.fixture
def command(tmp_path: Path, task: Any) -> list[str]:
    path = tmp_path / "all.tsv"
    path.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in task(300, 1)), encoding="utf-8")
    return ["train", "--recipe", "tiny", "--train", str(path), "--device", "cpu", "--set", *SETTINGS, *STEPS]


def losses(out: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.thorough
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


def test_the_parts_of_a_split_share_no_sentence_and_hold_all_pairs(cli: Any, tmp_path: Path, task: Any) -> None:
    pairs = list(dict.fromkeys(f"{src}\t{tgt}" for src, tgt in task(300, 1)))
    corpus = tmp_path / "all.tsv"
    corpus.write_text("".join(f"{pair}\n" for pair in pairs), encoding="utf-8")
    ran = cli("split", corpus, "--valid", "10%", "--test", "30pairs", "--out", tmp_path / "data")
    assert ran.code == 0, ran.err
    parts = {p: (tmp_path / "data" / f"{p}.tsv").read_text(encoding="utf-8").split("\n")[:-1] for p in PARTS}
    assert len(parts["test"]) == 30 and len(parts["valid"]) == round(0.1 * (len(pairs) - 30))
    assert sorted(pair for part in parts.values() for pair in part) == sorted(pairs)
    for one, other in (("train", "valid"), ("train", "test"), ("valid", "test")):
        for side in (0, 1):
            assert not {p.split("\t")[side] for p in parts[one]} & {p.split("\t")[side] for p in parts[other]}
    assert f"--train {tmp_path}/data/train.tsv --valid {tmp_path}/data/valid.tsv" in ran.err
    again = cli("split", corpus, "--test", "5%", "--out", tmp_path / "data")
    assert "has a train.tsv already" in again.complaint


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ([], "add --valid SIZE or --test SIZE"),
        (["--test", "5"], "--test 5: is not a valid size"),
        (["--valid", "valid.tsv"], "--valid valid.tsv: is not a valid size"),
        (["--test", "400pairs"], "--test 400pairs: the training files hold 300 pairs"),
        (
            ["--valid", "200pairs", "--test", "100pairs"],
            "after --test 100pairs, --valid 200pairs: the training files",
        ),
    ],
)
def test_a_split_names_the_option_that_is_wrong(
    command: list[str], cli: Any, tmp_path: Path, options: list[str], complaint: str
) -> None:
    assert complaint in cli("split", tmp_path / "all.tsv", *options, "--out", tmp_path / "data").complaint
    assert not (tmp_path / "data").exists()


def test_a_split_on_a_full_disk_leaves_no_file(command: list[str], cli: Any, tmp_path: Path) -> None:
    """The small parts would fit; the training pairs do not."""
    split = ["split", tmp_path / "all.tsv", "--valid", "10pairs", "--test", "10pairs", "--out"]
    assert cli(*split, tmp_path / "whole").code == 0  # and the parts are in the cache
    sizes = {part: (tmp_path / "whole" / f"{part}.tsv").stat().st_size for part in PARTS}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (sizes["train"] - 1, limits[1]))
    try:
        ran = cli(*split, tmp_path / "data")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert max(sizes["valid"], sizes["test"]) < sizes["train"] and "free some disk space" in ran.complaint
    assert [*(tmp_path / "data").iterdir()] == []


def test_a_memory_of_three_languages_is_split_and_checked(cli: Any, tmp_path: Path) -> None:
    units = ""
    for i in range(40):
        texts = (("en", f"word {i}"), ("de", f"Wort {i}"), ("fr", f"mot {i}"))
        variants = (f"<tuv xml:lang='{code}'><seg>{text}</seg></tuv>" for code, text in texts)
        units += f"<tu>{''.join(variants)}</tu>"
    memory = tmp_path / "memory.tmx"
    memory.write_text(f'<tmx version="1.4"><header/><body>{units}</body></tmx>', encoding="utf-8")
    checked = cli("check-corpus", memory, "--languages", "en-fr")
    assert checked.code == 0, checked.err
    assert "40 pairs" in checked.out
    ran = cli("split", memory, "--languages", "en-fr", "--test", "5pairs", "--out", tmp_path / "data")
    assert ran.code == 0, ran.err
    test = (tmp_path / "data" / "test.tsv").read_text(encoding="utf-8").splitlines()
    assert len(test) == 5 and all(line.split("\t")[1].startswith("mot ") for line in test)

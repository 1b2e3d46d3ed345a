"""Tagging as in docs/how-to/tags.md: `headwise train --task tag --init FOLDER`.

The models are tiny and random. They learn a few lines by heart, which shows that everything trains.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny_families import vocabulary, write_tiny
from tokenizers import processors

import headwise

Cli = Callable[..., Any]
QUICK = ["train.max_steps=60", "train.validate_every=30", "train.checkpoint_every=30", "train.log_every=30",
         "train.learning_rate=0.02", "train.warmup_steps=5", "train.threads=1"]  # fmt: skip
HEAD: dict[str, Any] = {"architectures": ["BertForTokenClassification"]}
TAGS = ["B-LOC", "B-PER", "I-PER", "O"]
LINES = [
    "Ann B-PER\nLee I-PER\nis O\nin O\nRome B-LOC\n",
    "Rome B-LOC\nis O\nold O\n. O\n",
    "Bob B-PER\n, O\nAnn B-PER\n",
]


def write(folder: Path, kind: str = "bert", **changes: Any) -> Path:
    """A folder whose tokenizer adds special tokens around a text."""
    write_tiny(folder, kind, changes)
    text = vocabulary(behind=False)
    text.post_processor = processors.TemplateProcessing("<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    text.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Options for training and validation sentences."""
    (tmp_path / "a.conll").write_text("\n".join(LINES * 4), encoding="utf-8")
    return ["--train", str(tmp_path / "a.conll"), "--valid", str(tmp_path / "a.conll")]


def validations(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "validation.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("kind", ["bert", "distilbert"])
def test_an_encoder_gets_a_head_and_is_trained(cli: Cli, files: list[str], tmp_path: Path, kind: str) -> None:
    ran = cli("train", "--task", "tag", "--init", write(tmp_path / "model", kind), *files, "--out", tmp_path / "out",
              "--set", *QUICK)  # fmt: skip
    assert ran.code == 0, ran.err
    assert "training on 12 sentences of 48 words with 4 tags, validating on 12" in ran.err
    assert "a new head for 4 classes on model, instead of its head (masked)" in ran.err
    figures = validations(tmp_path / "out")
    assert [row["step"] for row in figures] == [0, 30, 60]
    assert figures[-1]["f1"] > 0.9 > figures[0]["f1"] and figures[-1]["accuracy"] > 0.9
    values = json.loads((tmp_path / "out" / "config.json").read_text())
    assert values["architectures"] == [{"bert": "Bert", "distilbert": "DistilBert"}[kind] + "ForTokenClassification"]
    assert values["id2label"] == dict(zip("0123", TAGS, strict=True)) and "problem_type" not in values
    found = json.loads(cli("evaluate", tmp_path / "out", "--source", files[1], "--format", "json").out)
    assert (found["f1"], found["words"]) == (max(row["f1"] for row in figures), 48)
    assert found["kinds"].keys() == {"LOC", "PER"}
    assert "a tagging model" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8").lower()
    assert "tag, evaluate" in cli("info", tmp_path / "out").out


def test_entities_have_the_right_offsets(cli: Cli, files: list[str], tmp_path: Path) -> None:
    """Offsets are characters of the line, whatever separates the words; empty lines have no entities; words are
    unchanged.
    """
    start = write(tmp_path / "model")
    ran = cli("train", "--task", "tag", "--init", start, *files, "--out", tmp_path / "out", "--set", *QUICK)
    assert ran.code == 0, ran.err
    (tmp_path / "in.txt").write_text("Ann  Lee is in Rome\n\nBob, Ann\n", encoding="utf-8")
    rows = [line.split("\t") for line in cli("tag", tmp_path / "out", tmp_path / "in.txt").lines]
    expected = [["1", "0", "8", "PER", "Ann Lee"], ["1", "15", "19", "LOC", "Rome"], ["3", "0", "3", "PER", "Bob"],
                ["3", "5", "8", "PER", "Ann"]]  # fmt: skip
    assert [[*row[:4], row[5]] for row in rows] == expected
    assert all(0.3 < float(row[4]) <= 1 for row in rows)
    records = [
        json.loads(line) for line in cli("tag", tmp_path / "out", tmp_path / "in.txt", "--format", "jsonl").lines
    ]
    assert records[0]["text"] == "Ann  Lee is in Rome" and records[0]["words"] == ["Ann", "Lee", "is", "in", "Rome"]
    assert records[0]["spans"][0]["text"] == "Ann  Lee" and records[1]["spans"] == records[1]["words"] == []
    ran = cli("tag", tmp_path / "out", tmp_path / "in.txt", "--format", "conll", "--words")
    assert ran.out.startswith("Ann\tB-PER\nLee\tI-PER\nis\tO\nin\tO\nRome\tB-LOC\n\n\nBob,\t")
    model = headwise.load(tmp_path / "out", "cpu")
    given = model.tag([["Ann", "Lee", "is", "in", "Rome"]])[0]
    assert given.text == "Ann Lee is in Rome" and given.tags == records[0]["tags"]
    assert (given.spans[1].start, given.spans[1].end) == (14, 18)


def test_long_sentences_are_read_in_parts(cli: Cli, files: list[str], tmp_path: Path) -> None:
    """Parts of 10 tokens with their special tokens: the same words are evaluated, and every word has a tag."""
    start = write(tmp_path / "model")
    ran = cli("train", "--task", "tag", "--init", start, *files, "--out", tmp_path / "out",
              "--set", *QUICK, "data.max_length=10")  # fmt: skip
    assert ran.code == 0, ran.err
    assert validations(tmp_path / "out")[-1]["f1"] > 0.5
    many = ["Ann", "is", "old", "."] * 40  # 480 tokens, of which it reads 60 at once
    found = headwise.load(tmp_path / "out", "cpu").tag([many])[0]
    assert len(found.tags) == 160 and set(found.tags) <= set(TAGS)


def test_a_head_with_these_tags_is_fine_tuned(cli: Cli, files: list[str], tmp_path: Path) -> None:
    there = ["O", "B-PER", "I-PER", "B-LOC"]
    start = write(tmp_path / "model", **HEAD, id2label=dict(zip("0123", there, strict=True)))
    ran = cli("train", "--init", start, *files, "--out", tmp_path / "out",
              "--set", *QUICK, "train.max_steps=1", "train.learning_rate=1e-9")  # fmt: skip
    assert ran.code == 0, ran.err
    assert "training the head of model for 4 classes" in ran.err
    assert [*json.loads((tmp_path / "out" / "config.json").read_text())["id2label"].values()] == there
    before, after = (load_file(f / "model.safetensors")["classifier.weight"] for f in (start, tmp_path / "out"))
    assert torch.allclose(before, after, atol=1e-6)


@pytest.mark.thorough
def test_a_resumed_run_repeats_the_uninterrupted_one(cli: Cli, files: list[str], tmp_path: Path) -> None:
    settings = [*QUICK, "train.schedule=constant", "train.tokens_per_batch=60"]
    command = ["train", "--task", "tag", "--init", write(tmp_path / "model"), *files]
    assert cli(*command, "--out", tmp_path / "whole", "--set", *settings).code == 0
    assert cli(*command, "--out", tmp_path / "parts", "--set", *settings, "train.max_steps=30").code == 0
    ran = cli(*command, "--out", tmp_path / "parts", "--set", *settings, "--resume")
    assert ran.code == 0 and "resuming after step 30" in ran.err, ran.err
    whole, parts = (load_file(tmp_path / folder / "model.safetensors") for folder in ("whole", "parts"))
    assert all(torch.equal(whole[key], parts[key]) for key in whole)


def test_held_out_sentences_and_tags_that_occur_once(cli: Cli, files: list[str], tmp_path: Path) -> None:
    """Held-out sentences occur in no training sentence: copies of them are dropped."""
    with open(files[1], "a", encoding="utf-8") as file:
        file.writelines(f"\nAnn{i} B-PER\nis O\nin O\nRome B-LOC\n" for i in range(20))
        file.write("\nx B-MISC\n")
    ran = cli("train", "--task", "tag", "--init", write(tmp_path / "model"), *files[:2], "--valid", "10%",
              "--out", tmp_path / "out", "--set", *QUICK, "train.max_steps=2")  # fmt: skip
    assert ran.code == 0, ran.err
    assert "only one training example, which is too few: tag 'B-MISC'; check the spelling" in ran.err
    corpus = json.loads((tmp_path / "out" / "training.json").read_text())["corpus"]
    assert corpus["held_out"]["taken"] == 3
    assert corpus["sentences"] + 3 + corpus["held_out"]["dropped"] == 33


BAD = [
    ("a O\nb\n", "a O\n", "t.conll: line 2 has a word without a tag"),
    ("a O\nb O\n", "a O\n", "t.conll: every word has the tag 'O'; training needs two tags"),
    ("a O\nb X\n", "a O\n\nc Y\n", "v.conll: line 3: unknown tag 'Y'"),
    ("\n", "a O\n", "t.conll: has no sentence"),
    ("a O\nb X\n", "", "v.conll: is empty"),
    ("a O\nb X\n", "50%", "--valid 50%: the training files hold 1 sentence; leave some to train on"),
]


@pytest.mark.parametrize(("train", "valid", "expected"), BAD)
def test_bad_files_give_one_line(cli: Cli, tmp_path: Path, train: str, valid: str, expected: str) -> None:
    (tmp_path / "t.conll").write_text(train, encoding="utf-8")
    (tmp_path / "v.conll").write_text(valid, encoding="utf-8")
    named = valid if valid.endswith("%") else tmp_path / "v.conll"
    ran = cli("train", "--task", "tag", "--init", write(tmp_path / "model"), "--train", tmp_path / "t.conll", "--valid",
              named, "--out", tmp_path / "out")  # fmt: skip
    assert expected in ran.complaint
    assert not (tmp_path / "out" / "config.json").exists()


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--special", "<s>"], "has this token already; leave it out"),
        (["--set", "data.max_length=2"], "data.max_length = 2 leaves no room for a word between the special tokens"),
        (["--set", "train.best_metric=macro_f1"], "train.best_metric = macro_f1 is not measured by model.task = tag"),
    ],
)
def test_refused_options(cli: Cli, files: list[str], tmp_path: Path, more: list[str], expected: str) -> None:
    start = write(tmp_path / "model")
    ran = cli("train", "--task", "tag", "--init", start, *files, "--out", tmp_path / "out", *more)
    assert expected in ran.complaint


def test_models_without_tags_are_refused(cli: Cli, files: list[str], tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\n", encoding="utf-8")
    complaint = cli("tag", write(tmp_path / "bert"), tmp_path / "in.txt").complaint
    assert "a model of bert that cannot tag words; train --task tag teaches it" in complaint
    tagger = write(tmp_path / "tagger", **HEAD, id2label={"0": "O", "1": "X"})
    assert "line 1: unknown tag 'B-PER'" in cli("evaluate", tagger, "--source", files[1]).complaint
    write_tiny(tmp_path / "gpt2", "gpt2")
    ran = cli("train", "--task", "tag", "--init", tmp_path / "gpt2", *files, "--out", tmp_path / "out")
    assert "this task needs an encoder (BERT or a similar model)" in ran.complaint


def test_a_part_that_leaves_no_training_data(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "same.conll").write_text("\n".join([LINES[0]] * 4), encoding="utf-8")
    ran = cli("train", "--task", "tag", "--init", write(tmp_path / "model"), "--train", tmp_path / "same.conll",
              "--valid", "25%", "--out", tmp_path / "out")  # fmt: skip
    assert "--valid 25%: all other sentences are duplicates" in ran.complaint

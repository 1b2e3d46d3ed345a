"""Encoder tasks from scratch: `headwise train --recipe tag` (answer, embed), and uses of the results.

The models are tiny and random. They learn a few lines by heart, which shows that everything trains.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from killing import killed_and_resumed, records
from safetensors.torch import load_file

Cli = Callable[..., Any]
QUICK = ["train.max_steps=80", "train.validate_every=40", "train.checkpoint_every=20", "train.log_every=40",
         "train.learning_rate=0.01", "train.warmup_steps=5", "train.threads=1", "train.tokens_per_batch=120",
         "model.d_model=16", "model.d_ff=32", "model.dropout=0.0", "data.vocab_size=290"]  # fmt: skip
TAGGED = [
    "Ann B-PER\nLee I-PER\nis O\nin O\nRome B-LOC\n",
    "Rome B-LOC\nis O\nold O\n. O\n",
    "Bob B-PER\n, O\nAnn B-PER\n",
]
CONTEXTS = ["Ann lives in Rome.", "Bob went to Oslo."]
WORDS = ["dog", "cat", "owl", "sun", "tea", "car"]


def write_files(folder: Path) -> dict[str, Path]:
    """A file for each task, small enough to be learned by heart."""
    paths = {"tag": folder / "a.conll", "answer": folder / "q.json", "embed": folder / "pairs.tsv"}
    paths["tag"].write_text("\n".join(TAGGED * 2), encoding="utf-8")
    asked = [
        {
            "context": context,
            "qas": [{"id": "", "question": "where?", "answers": [{"text": place, "answer_start": at}]}],
        }
        for context, place, at in ((CONTEXTS[0], "Rome", 13), (CONTEXTS[1], "Oslo", 12))
    ]
    for i, one in enumerate(asked):
        one["qas"][0]["id"] = str(i)
    paths["answer"].write_text(json.dumps({"data": [{"paragraphs": asked}]}), encoding="utf-8")
    paths["embed"].write_text("".join(f"{word}\tI saw a {word} there\n" for word in WORDS), encoding="utf-8")
    return paths


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    return write_files(tmp_path)


def command(task: str, file: Path, *more: str) -> list[str]:
    start = ["train", "--recipe", task, "--train", str(file), "--valid", str(file), "--device", "cpu"]
    return [*start, "--set", *QUICK, *more]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("task", "figure", "network", "verbs"),
    [
        ("tag", "f1", "BertForTokenClassification", "tag, evaluate"),
        ("answer", "f1", "BertForQuestionAnswering", "answer, evaluate"),
        ("embed", "mrr", "BertModel", "embed, evaluate, inspect, explore"),
    ],
)
def test_an_encoder_trains_from_scratch(
    cli: Cli, files: dict[str, Path], tmp_path: Path, task: str, figure: str, network: str, verbs: str
) -> None:
    """In BERT's layout, evaluated like a pretrained one, usable by every command and for fine-tuning."""
    out = tmp_path / "out"
    ran = cli(*command(task, files[task]), "--out", out)
    assert ran.code == 0, ran.err
    assert "training a tokenizer: bpe with 290 tokens" in ran.err
    rows = records(out, "validation.jsonl")
    assert [row["step"] for row in rows] == [40, 80] and rows[-1][figure] > 0.9  # no validation before training
    assert json.loads((out / "config.json").read_text())["architectures"] == [network]
    trained = json.loads((out / "training.json").read_text())
    assert trained["init"] == "" and trained["recipe"] == task
    assert verbs in cli("info", out).out
    found = json.loads(cli("evaluate", out, "--source", files[task], "--format", "json").out)
    assert found[figure] == pytest.approx(max(row[figure] for row in rows))
    begun, after = (load_file(path / "model.safetensors") for path in (out / "bert-begun", out))
    assert {key for key, value in begun.items() if torch.equal(value, after[key])} <= {
        "bert.embeddings.token_type_embeddings.weight"
    }
    again = cli("train", "--task", task, "--init", out, "--train", files[task], "--valid", files[task],
                "--out", tmp_path / "again", "--set", "train.max_steps=1", "train.threads=1")  # fmt: skip
    assert again.code == 0, again.err
    assert records(tmp_path / "again", "validation.jsonl")[0][figure] == pytest.approx(found[figure])


@pytest.mark.thorough
@pytest.mark.parametrize("task", ["tag"])
def test_a_killed_run_is_resumed_exactly(cli: Cli, files: dict[str, Path], tmp_path: Path, task: str) -> None:
    constant = command(task, files[task], "train.schedule=constant", "model.dropout=0.1")
    assert cli(*constant, "--out", tmp_path / "whole").code == 0
    killed_and_resumed(cli, constant, 20, tmp_path / "parts", tmp_path / "whole")


def test_the_seed_determines_the_initial_weights(cli: Cli, files: dict[str, Path], tmp_path: Path) -> None:
    weights = []
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        ran = cli(*command("embed", files["embed"], "train.max_steps=1"), "--seed", seed, "--out", tmp_path / name)
        assert ran.code == 0, ran.err
        weights.append((tmp_path / name / "bert-begun" / "model.safetensors").read_bytes())
    assert weights[0] == weights[1] != weights[2]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (
            ["model.max_len=99"],
            "model.max_len = 99: an encoder has data.max_length = 256 positions; leave it out",
        ),
        (["model.positions=rotary"], "a reading model is saved in the layout of bert, and bert cannot have"),
        (["train.lora_rank=2"], "adapters need a pretrained model; start from one with --init, or leave it out"),
        (["data.tokenizer=absent.json"], "absent.json"),
    ],
)
def test_unsupported_options_leave_no_files(
    cli: Cli, files: dict[str, Path], tmp_path: Path, more: list[str], expected: str
) -> None:
    assert expected in cli(*command("tag", files["tag"], *more), "--out", tmp_path / "out").complaint
    assert not (tmp_path / "out" / "config.json").exists()


def test_refused_files_leave_no_files(cli: Cli, files: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "one.conll").write_text("Ann O\n", encoding="utf-8")
    ran = cli(*command("tag", tmp_path / "one.conll"), "--out", tmp_path / "out")
    assert "every word has the tag 'O'; training needs two tags" in ran.complaint
    assert not (tmp_path / "out").exists()


def test_the_tokenizer_is_trained_with_the_options(cli: Cli, files: dict[str, Path], tmp_path: Path) -> None:
    """With special tokens, from the training texts only; other special tokens are another run."""
    out, other = tmp_path / "out", tmp_path / "other"
    ran = cli(*command("tag", files["tag"], "train.max_steps=1"), "--special", "<x>", "--out", out)
    assert ran.code == 0, ran.err
    pieces = json.loads((out / "tokenizer.json").read_text())
    assert "<x>" in {piece["content"] for piece in pieces["added_tokens"]} and "ĠRome" in pieces["model"]["vocab"]
    taken = f"data.tokenizer={out / 'tokenizer.json'}"
    assert cli(*command("embed", files["embed"], "train.max_steps=1", taken), "--out", other).code == 0
    assert json.loads((other / "tokenizer.json").read_text())["model"] == pieces["model"]

"""Denoising pre-training of T5 and BART as users run it: `headwise train --task denoise --init FOLDER`.

The models are tiny and random. They learn an alphabet by heart.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from killing import killed_and_resumed, records
from safetensors.torch import load_file
from tiny_families import write_tiny

import headwise

Cli = Callable[..., Any]
SENTINELS = [f"<extra_id_{i}>" for i in range(4)]
QUICK = ["train.max_steps=40", "train.validate_every=20", "train.checkpoint_every=10", "train.log_every=10",
         "train.learning_rate=0.01", "train.warmup_steps=5", "train.tokens_per_batch=256", "train.threads=1",
         "data.block_length=24"]  # fmt: skip
KINDS = {"t5": "t5", "bart": "marian", "mbart": "m2m"}


def write(folder: Path, name: str, marks: list[str] | None = None, **changes: Any) -> list[str]:
    """A folder, and the language options of commands."""
    model = {"model_type": name} if name == "bart" else {"model_type": name, "max_position_embeddings": 200}
    write_tiny(folder, KINDS[name], {**(model if name != "t5" else {}), **changes}, marks=marks or [])
    return ["--source-language=de", "--target-language=de"] if name == "mbart" else []


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    (folder / "train.txt").write_text("abcdefghij klmnop. qrstuvwxyz.\n" * 40, encoding="utf-8")
    (folder / "valid.txt").write_text("abcdefghij klmnop. qrstuvwxyz.\n" * 4, encoding="utf-8")
    return folder


def files(texts: Path) -> list[str]:
    return ["--train", str(texts / "train.txt"), "--valid", str(texts / "valid.txt")]


def command(texts: Path, model: Path, languages: list[str]) -> list[str]:
    start = ["train", "--task", "denoise", "--init", str(model), *files(texts), *languages]
    return [*start, "--device", "cpu", "--set", *QUICK]


@pytest.mark.few(1)
@pytest.mark.parametrize("name", KINDS)
def test_training_keeps_the_layout(name: str, cli: Cli, texts: Path, tmp_path: Path) -> None:
    languages = write(tmp_path / "model", name, SENTINELS if name == "t5" else [])
    ran = cli(*command(texts, tmp_path / "model", languages), "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    figures = records(tmp_path / "out", "validation.jsonl")
    assert [row["step"] for row in figures] == [0, 20, 40]
    assert figures[-1]["loss"] < figures[0]["loss"] - 1
    before, after = (load_file(tmp_path / folder / "model.safetensors") for folder in ("model", "out"))
    assert {key: value.shape for key, value in before.items()} == {key: value.shape for key, value in after.items()}
    assert sum(not torch.equal(before[key], after[key]) for key in before) > 20
    for file in ("config.json", "tokenizer.json", "generation_config.json"):
        assert json.loads((tmp_path / "out" / file).read_text()) == json.loads((tmp_path / "model" / file).read_text())
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "recipe | tune-denoise from the weights of `model`" in card and "in blocks of 24" in card
    assert "model.generate([" in card and "headwise train --init ." in card
    model = headwise.load(tmp_path / "out", "cpu")
    assert model.between(*(one.partition("=")[2] for one in languages)).generate(["abc<mask>"], max_new_tokens=5)
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out").eval()
    src, tgt = torch.tensor([[20, 21, 22, 2]]), torch.tensor([[2, 20, 21]])
    with torch.no_grad():
        expected = theirs(input_ids=src, decoder_input_ids=tgt).logits
        torch.testing.assert_close(model.network(src, tgt), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("name", ["t5", "bart"])
def test_a_killed_run_is_resumed_exactly(name: str, texts: Path, cli: Cli, tmp_path: Path) -> None:
    write(tmp_path / "model", name, SENTINELS if name == "t5" else [])
    start = command(texts, tmp_path / "model", [])
    assert cli(*start, "--out", tmp_path / "whole").code == 0
    killed_and_resumed(cli, start, 10, tmp_path / "parts", tmp_path / "whole")


@pytest.mark.parametrize(
    ("name", "more", "expected"),
    [
        ("t5", ["--set", "data.block_length=3"], "data.block_length = 3: leaves no room for text"),
        ("bart", ["--set", "data.block_length=2"], "data.block_length = 2: leaves no room for text"),
        ("t5", ["--set", "data.block_length=200"], "has 4 sentinels such as <extra_id_0>, and a block of"),
        ("bart", ["--set", "data.block_length=201"], "model reads at most 200 tokens"),
        ("t5", ["--source-language", "de"], "only mBART needs them for denoising"),
        (
            "mbart",
            ["--source-language", "de", "--target-language", "fr"],
            "both with the code of the language",
        ),
        ("mbart", [], "a multilingual model (mbart) needs source_language and target_language"),
        ("t5", ["--set", "data.max_length=50"], "data.max_length = 50: has no effect on denoising of running text"),
        ("t5", ["--set", "train.best_metric=bleu"], "denoising of running text only has a loss"),
        ("t5", ["--set", "data.bpe_dropout=0.1"], "a pretrained model keeps its vocabulary"),
        ("bart", ["--special", "<s>"], "has this token already; leave it out"),
        (
            "bart",
            ["--set", "data.block_length=150", "--valid", "40%"],
            "tokens, and a block of data.block_length = 150",
        ),
    ],
)
def test_unsupported_options(cli: Cli, texts: Path, tmp_path: Path, name: str, more: list[str], expected: str) -> None:
    write(tmp_path / "model", name, SENTINELS if name == "t5" else [])
    start = ["train", "--task", "denoise", "--init", tmp_path / "model", *files(texts), "--out", tmp_path / "out"]
    if "40%" in more:
        start[start.index("--train") + 1] = str(texts / "valid.txt")
    assert expected in cli(*start, *more).complaint.replace(f"{tmp_path / 'model'} reads", "model reads")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("t5", "its vocabulary has 0 sentinels such as <extra_id_0>"),
        ("marian", "is a marian model; denoising of running text supports T5, mT5, BART and mBART"),
        ("gpt2", "this task needs a T5, mT5, BART or mBART"),
    ],
)
def test_folders_that_were_not_trained_so(cli: Cli, texts: Path, tmp_path: Path, name: str, expected: str) -> None:
    write_tiny(tmp_path / "model", name)
    ran = cli("train", "--task", "denoise", "--init", tmp_path / "model", *files(texts), "--out", tmp_path / "out")
    assert expected in ran.complaint


def test_a_translator_of_ours_is_not_restored_with(cli: Cli, texts: Path, model_path: Path, tmp_path: Path) -> None:
    ran = cli("train", "--task", "denoise", "--init", model_path, *files(texts), "--out", tmp_path / "out")
    assert "--task denoise starts from a T5, mT5, BART or mBART, which this is not" in ran.complaint


def test_lines_are_no_blocks(cli: Cli, texts: Path, tmp_path: Path) -> None:
    start = ["train", "--task", "denoise", "--recipe", "tiny", *files(texts), "--out", tmp_path / "out"]
    ran = cli(*start, "--set", "data.block_length=9")
    assert "data.block_length = 9: training from scratch uses lines of at most" in ran.complaint

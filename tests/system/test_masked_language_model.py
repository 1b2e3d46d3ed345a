"""A masked language model as users run it: `headwise train --task mlm`, from scratch and with `--init`.

The networks are tiny. They learn to predict a letter from its two neighbours.
"""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from killing import killed_and_resumed, records
from safetensors.torch import load_file
from tiny_families import write_tiny

import headwise

Cli = Callable[..., Any]
ALPHABET = "abcdefghijklmnopqrstuvwxyz\n"
SHAPE = ["model.d_model=32", "model.d_ff=48", "model.n_heads=2", "model.n_encoder_layers=1", "model.dropout=0.1"]
QUICK = ["train.max_steps=40", "train.validate_every=20", "train.checkpoint_every=10", "train.log_every=10",
         "train.learning_rate=0.02", "train.warmup_steps=5", "train.tokens_per_batch=256", "train.threads=1",
         "data.block_length=16"]  # fmt: skip
FRESH = ["data.subword=characters", *SHAPE, *QUICK]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    (folder / "train.txt").write_text(ALPHABET * 40, encoding="utf-8")
    (folder / "valid.txt").write_text(ALPHABET * 4, encoding="utf-8")
    (folder / "short.txt").write_text("abc\n", encoding="utf-8")
    return folder


def files(texts: Path) -> list[str]:
    return ["--train", str(texts / "train.txt"), "--valid", str(texts / "valid.txt")]


def command(texts: Path) -> list[str]:
    return ["train", "--recipe", "bert", *files(texts), "--device", "cpu", "--set", *FRESH]


@pytest.fixture(scope="module")
def trained(texts: Path, cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "bert"
    ran = cli(*command(texts), "--out", out)
    assert ran.code == 0, ran.err
    return out


# --- From scratch


def test_every_command_for_masked_language_models(trained: Path, texts: Path, cli: Cli) -> None:
    first, last = records(trained, "validation.jsonl")
    assert last["loss"] < first["loss"] < 3.5  # 3.4 for guessing
    report = json.loads(cli("evaluate", trained, "--source", texts / "valid.txt", "--format", "json").out)
    assert report["loss"] == pytest.approx(last["loss"], abs=1e-5)
    assert report["accuracy"] == pytest.approx(last["accuracy"])
    assert (report["tokens"], report["masked"]) == (108, 15)  # 2 of the 14 in each of 7 blocks, 1 of the rest
    assert cli("evaluate", trained, "--source", texts / "valid.txt").out.startswith("accuracy ")
    filled = cli("fill", trained, "abc[MASK]efg").out.splitlines()
    assert len(filled) == 5 and all(len(line.split()) <= 2 for line in filled)
    info = cli("info", trained).out
    assert "bert (BertForMaskedLM)" in info and "fill, embed, evaluate" in info and "32 tokens" in info
    card = (trained / "README.md").read_text(encoding="utf-8")
    assert card.startswith("# A masked language model made with Headwise") and "1,080 tokens, in blocks of 16" in card


def test_transformers_loads_it_and_computes_the_same(trained: Path) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(trained).eval()
    cut = transformers.AutoTokenizer.from_pretrained(trained)
    own = headwise.load(trained, "cpu")
    ids = cut("abc[MASK]efg")["input_ids"]
    assert ids == own.tokenizer.encode("abc[MASK]efg")
    assert (ids[0], ids[4], ids[-1]) == (cut.cls_token_id, cut.mask_token_id, cut.sep_token_id)
    assert cut("ab", "c")["token_type_ids"] == [0, 0, 0, 0, 1, 1]
    with torch.no_grad():
        expected = theirs(torch.tensor([ids])).logits
        torch.testing.assert_close(own.network(torch.tensor([ids])), expected, atol=1e-5, rtol=0)


@pytest.mark.thorough
@pytest.mark.slow
def test_a_killed_run_is_resumed_exactly(trained: Path, texts: Path, cli: Cli, tmp_path: Path) -> None:
    killed_and_resumed(cli, command(texts), 10, tmp_path / "model", trained)


def test_subwords_whole_words_and_an_existing_tokenizer(texts: Path, cli: Cli, trained: Path, tmp_path: Path) -> None:
    two = [*SHAPE, *QUICK, "train.max_steps=2"]
    learnt = ["data.vocab_size=263", "data.whole_words=true", "data.mask_share=0.3", "train.best_metric=accuracy"]
    ran = cli("train", "--recipe", "bert", *files(texts), "--out", tmp_path / "a", "--set", *two, *learnt)
    assert ran.code == 0, ran.err
    given = [f"data.tokenizer={trained / 'tokenizer.json'}"]
    ran = cli("train", "--recipe", "bert", *files(texts), "--out", tmp_path / "b", "--set", *two, *given)
    assert ran.code == 0, ran.err
    assert (tmp_path / "b" / "tokenizer.json").read_bytes() == (trained / "tokenizer.json").read_bytes()


# --- Fine-tuned


@pytest.mark.parametrize("kind", ["bert", "distilbert"])
def test_training_keeps_the_layout(kind: str, cli: Cli, texts: Path, tmp_path: Path) -> None:
    write_tiny(tmp_path / "model", kind, mask_token="<mask>")
    arguments = ["train", "--init", tmp_path / "model", *files(texts), "--out", tmp_path / "out", "--set", *QUICK]
    ran = cli(*arguments)
    assert ran.code == 0, ran.err
    figures = records(tmp_path / "out", "validation.jsonl")
    assert [row["step"] for row in figures] == [0, 20, 40]
    assert figures[-1]["loss"] < figures[0]["loss"] - 1
    before, after = (load_file(tmp_path / folder / "model.safetensors") for folder in ("model", "out"))
    assert {key: value.shape for key, value in before.items()} == {key: value.shape for key, value in after.items()}
    assert all(not torch.equal(before[key], after[key]) for key in before if "token_type" not in key)
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == (tmp_path / "model" / "tokenizer.json").read_bytes()
    report = json.loads(cli("evaluate", tmp_path / "out", "--source", texts / "valid.txt", "--format", "json").out)
    assert report["loss"] < figures[0]["loss"]
    assert "recipe | tune-mlm from the weights of `model`" in (tmp_path / "out" / "README.md").read_text(
        encoding="utf-8"
    )


def test_fine_tuning_a_model_trained_here(trained: Path, texts: Path, cli: Cli, tmp_path: Path) -> None:
    settings = [*QUICK, "train.max_steps=2", "train.validate_every=2"]
    ran = cli("train", "--init", trained, *files(texts), "--out", tmp_path / "out", "--set", *settings)
    assert ran.code == 0, ran.err
    last = records(trained, "validation.jsonl")[-1]
    first = records(tmp_path / "out", "validation.jsonl")[0]
    assert (first["loss"], first["accuracy"]) == pytest.approx((last["loss"], last["accuracy"]), abs=1e-5)


# --- Sequences, one a line


def test_each_line_is_a_sequence(cli: Cli, tmp_path: Path) -> None:
    """A letter follows from its position in a line, which blocks do not show."""
    random = Random(2)
    lines = [ALPHABET[: random.randint(4, 14)] for _ in range(300)]
    for name, part in (("train.txt", lines[40:]), ("valid.txt", lines[:40])):
        (tmp_path / name).write_text("\n".join(part) + "\n", encoding="utf-8")
    out, valid = tmp_path / "out", ["--source", tmp_path / "valid.txt"]
    ran = cli(*command(tmp_path), "--out", out)
    assert ran.code == 0, ran.err
    assert "reading each line is a sequence (lines are short and independent); data.reading" in ran.err
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "in 260 lines, each a sequence" in card
    found = json.loads(cli("evaluate", out, *valid, "--format", "json").out)
    assert found["reading"] == "lines" and found["tokens"] == sum(map(len, lines[:40]))
    assert found["loss"] == pytest.approx(records(out, "validation.jsonl")[-1]["loss"], abs=1e-5)
    blocks = json.loads(cli("evaluate", out, *valid, "--format", "json", "--reading", "blocks").out)
    assert blocks["reading"] == "blocks" and blocks["accuracy"] < found["accuracy"] - 0.2
    assert "read in lines: lines are short and independent)" in cli("evaluate", out, *valid).out
    held = cli(*command(tmp_path)[:5], "--valid", "10%", "--device", "cpu", "--set", *FRESH, "--out", tmp_path / "held")
    assert held.code == 0, held.err


# --- Unsupported options


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (
            ["--set", "data.block_length=5000", "data.reading=blocks"],
            "tokens, and a block of data.block_length = 5000 needs 5,001",
        ),
        (["--set", "data.block_length=2"], "data.block_length = 2: a block has 2 special tokens; raise it"),
        (["--set", "model.max_len=99"], "model.max_len = 99: a language model has data.block"),
        (["--set", "model.norm=rms"], "a masked language model is saved in the layout of bert, and bert cannot have "),
        (["--set", "model.positions=rotary"], "bert cannot have "),
        (["--set", "model.n_decoder_layers=2"], "model.n_decoder_layers = 2 is not used by model.task = mlm"),
        (["--set", "data.mask_share=0"], "data.mask_share = 0.0: must be greater than 0 and at most 1"),
        (["--recipe", "tiny"], "--task mlm with --recipe tiny: "),
    ],
)
def test_unsupported_options_from_scratch(
    cli: Cli, texts: Path, tmp_path: Path, more: list[str], expected: str
) -> None:
    start = ["train", "--task", "mlm", *([] if "--recipe" in more else ["--recipe", "bert"]), *files(texts)]
    assert expected in cli(*start, "--out", tmp_path / "out", *more).complaint
    assert not (tmp_path / "out").exists()


def test_a_text_that_is_too_short(cli: Cli, texts: Path, tmp_path: Path) -> None:
    arguments = ["--train", texts / "short.txt", "--valid", texts / "valid.txt", "--out", tmp_path / "out"]
    ran = cli("train", "--recipe", "bert", *arguments, "--set", "data.subword=characters", "data.reading=blocks")
    assert "short.txt: 4 tokens, and a block of data.block_length = 128 needs 129" in ran.complaint


def test_a_tokenizer_without_a_mask(cli: Cli, texts: Path, model_path: Path, tmp_path: Path) -> None:
    given = f"data.tokenizer={model_path / 'tokenizer.json'}"
    ran = cli("train", "--recipe", "bert", *files(texts), "--out", tmp_path / "out", "--set", given)
    assert "tokenizer.json: the tokenizer has no mask token ([MASK] or <mask>)" in ran.complaint


@pytest.mark.parametrize(
    ("kind", "changes", "more", "expected"),
    [
        ("gpt2", {}, [], "is a gpt2 model that continues texts; this task needs an encoder with its masked"),
        (
            "bert",
            {"architectures": ["BertModel"]},
            [],
            "is a bert model that reads texts; this task needs an encoder with its masked language",
        ),
        ("bert", {}, ["--set", "data.block_length=61"], "data.block_length = 61: "),
        ("bert", {}, ["--set", "model.d_model=64"], "the shape is that of --init"),
        ("bert", {}, ["--special", "<s>"], "has this token already; leave it out"),
    ],
)
def test_unsupported_options_with_a_folder(
    cli: Cli, texts: Path, tmp_path: Path, kind: str, changes: dict[str, Any], more: list[str], expected: str
) -> None:
    write_tiny(tmp_path / "model", kind, changes)
    ran = cli("train", "--task", "mlm", "--init", tmp_path / "model", *files(texts), "--out", tmp_path / "out", *more)
    assert expected in ran.complaint
    assert not (tmp_path / "out").exists()


def test_a_translation_model_is_no_masked_language_model(
    cli: Cli, texts: Path, model_path: Path, tmp_path: Path
) -> None:
    ran = cli("train", "--task", "mlm", "--init", model_path, *files(texts), "--out", tmp_path / "out")
    assert "--task mlm starts from an encoder with its masked language model head" in ran.complaint

"""A language model as users run it: `headwise train --task lm`, from scratch and with `--init`, and its uses.

The networks are tiny. They learn the alphabet by heart, which shows that everything trains.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from killing import killed_and_resumed, records
from safetensors.torch import load_file, save_file
from tiny_families import write_tiny

import headwise
from headwise.pytorch.tasks.language_modelling import FINE_TUNING

Cli = Callable[..., Any]
ALPHABET = "abcdefghijklmnopqrstuvwxyz\n"
SHAPE = ["model.d_model=32", "model.d_ff=48", "model.n_heads=2", "model.n_decoder_layers=1", "model.dropout=0.1"]
QUICK = ["train.max_steps=60", "train.validate_every=30", "train.checkpoint_every=10", "train.log_every=10",
         "train.learning_rate=0.02", "train.warmup_steps=5", "train.tokens_per_batch=256", "train.threads=1",
         "data.block_length=16"]  # fmt: skip
RECIPES = {"gpt": SHAPE, "llama": [*SHAPE, "model.n_kv_heads=1"]}


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    (folder / "train.txt").write_text(ALPHABET * 40, encoding="utf-8")
    (folder / "valid.txt").write_text(ALPHABET * 4, encoding="utf-8")
    return folder


def files(texts: Path) -> list[str]:
    return ["--train", str(texts / "train.txt"), "--valid", str(texts / "valid.txt")]


def command(texts: Path, recipe: str = "gpt") -> list[str]:
    settings = ["data.subword=characters", *RECIPES[recipe], *QUICK]
    return ["train", "--recipe", recipe, *files(texts), "--device", "cpu", "--set", *settings]


@pytest.fixture(scope="module")
def trained(texts: Path, cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both kinds, in folders with their names; read only."""
    folder = tmp_path_factory.mktemp("trained")
    for recipe in RECIPES:
        ran = cli(*command(texts, recipe), "--out", folder / recipe)
        assert ran.code == 0, ran.err
    return folder


# --- From scratch


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_command_for_language_models(recipe: str, trained: Path, texts: Path, cli: Cli) -> None:
    folder = trained / recipe
    validated = records(folder, "validation.jsonl")[-1]
    assert validated["loss"] < 0.6  # guessing gives 3.4; the first letter of each block is hard
    assert validated["perplexity"] == pytest.approx(2.718281828 ** validated["loss"], rel=1e-6)
    assert cli("generate", folder, "hijkl", "--max-new-tokens", "9").out.startswith("mnopqrstu")
    scored = cli("score", folder, "--source", texts / "valid.txt", "--stride", "1")
    found = json.loads(scored.out)
    assert found["tokens"] == len(ALPHABET) * 4 - 1 and found["perplexity"] < 1.4
    report = json.loads(cli("evaluate", folder, "--source", texts / "valid.txt", "--format", "json").out)
    assert report["tokens"] == found["tokens"] and report["bytes"] == found["tokens"] and report["loss"] < 0.6
    assert report["bits_per_byte"] == pytest.approx(
        report["loss"] * 1.4427 * report["tokens"] / report["bytes"], rel=1e-4
    )
    assert cli("evaluate", folder, "--source", texts / "valid.txt").out.startswith("perplexity ")
    info = cli("info", folder).out
    assert "generate, embed, score, evaluate, inspect, explore" in info
    assert f"model          {'gpt2' if recipe == 'gpt' else recipe}" in info and "31 tokens" in info
    assert "training data  train.txt: " in info and "validation     loss " in info, "as its card says"
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert (
        card.startswith("# A language model made with Headwise") and "train.txt: 1,080 tokens, in blocks of 16" in card
    )
    assert 2 not in headwise.load(folder, "cpu").encode("</s>")  # special tokens in a text are text
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == 2


@pytest.mark.parametrize("recipe", RECIPES)
def test_transformers_loads_it_and_computes_the_same(recipe: str, trained: Path) -> None:
    transformers = pytest.importorskip("transformers")
    folder = trained / recipe
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    cut = transformers.AutoTokenizer.from_pretrained(folder)
    own = headwise.load(folder, "cpu")
    text = "abc\nxyz"
    ids = cut(text)["input_ids"]
    assert ids == own.encode(text)
    assert cut.decode(ids) == text
    with torch.no_grad():
        torch.testing.assert_close(
            own.network(torch.tensor([ids])), theirs(torch.tensor([ids])).logits, atol=1e-5, rtol=0
        )


def test_perplexity_with_stride_is_that_of_transformers_documentation(trained: Path) -> None:
    """https://huggingface.co/docs/transformers/perplexity, with windows weighted by their predicted tokens."""
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(trained / "gpt").eval()
    own, text = headwise.load(trained / "gpt", "cpu"), ALPHABET * 2
    ids = torch.tensor([own.encode(text)])
    length, stride, before, total, count = 16, 5, 0, 0.0, 0
    for begin in range(0, ids.size(1), stride):
        end = min(begin + length, ids.size(1))
        labels = ids[:, begin:end].clone()
        labels[:, : -(end - before)] = -100
        n = int((labels[:, 1:] != -100).sum())
        with torch.no_grad():
            total += theirs(ids[:, begin:end], labels=labels).loss.item() * n
        count, before = count + n, end
        if end == ids.size(1):
            break
    found = own.perplexity(text, stride=stride)
    assert found.tokens == count == len(ALPHABET) * 2 - 1
    assert -found.log_prob == pytest.approx(total, rel=1e-4)


def test_subwords_and_held_out_text(texts: Path, cli: Cli, tmp_path: Path) -> None:
    settings = ["--set", *SHAPE, *QUICK, "data.vocab_size=262", "train.max_steps=2"]
    arguments = [
        "train",
        "--task",
        "lm",
        "--recipe",
        "gpt",
        "--train",
        texts / "train.txt",
        "--special",
        "<x>",
        *settings,
    ]
    ran = cli(*arguments, "--valid", "10%", "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    assert "tokens of the training files (10%)" in ran.err
    held = json.loads((tmp_path / "out" / "training.json").read_text())["corpus"]
    assert held["held_out"]["taken"] == round((held["tokens"] + held["held_out"]["taken"]) * 0.1)
    assert "<x>" in headwise.load(tmp_path / "out", "cpu").tokenizer.pieces()


def test_documents_of_jsonl_and_standard_input(cli: Cli, texts: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": ALPHABET}) + "\n", encoding="utf-8")
    arguments = ["train", "--recipe", "gpt", "--train", "-", tmp_path / "a.jsonl", "--valid", texts / "valid.txt"]
    settings = ["--set", "data.subword=characters", *SHAPE, *QUICK, "train.max_steps=1"]
    ran = cli(*arguments, *settings, "--out", tmp_path / "out", stdin=ALPHABET.encode())
    assert ran.code == 0, ran.err
    assert (
        "training on 55 tokens of 53 characters in 2 documents" in ran.err
    )  # the last line end belongs to no document


# --- Resumed


@pytest.mark.slow
def test_a_killed_run_is_resumed_exactly(trained: Path, texts: Path, cli: Cli, tmp_path: Path) -> None:
    killed_and_resumed(cli, command(texts), 20, tmp_path / "model", trained / "gpt")


def test_another_text_or_setting_is_another_run(trained: Path, texts: Path, cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "model"
    shutil.copytree(trained / "gpt", out)
    assert (
        "data.block_length was 16, now 8"
        in cli(*command(texts), "data.block_length=8", "--out", out, "--resume").complaint
    )
    other = [argument.replace("train.txt", "valid.txt") for argument in command(texts)]
    assert "the training files differ from those of the run" in cli(*other, "--out", out, "--resume").complaint


# --- Fine-tuned


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_training_keeps_the_layout(kind: str, cli: Cli, texts: Path, tmp_path: Path) -> None:
    write_tiny(tmp_path / "model", kind, {"dtype": "float16"}, {"max_new_tokens": 7}, chat_template="{{ messages }}")
    path = tmp_path / "model" / "model.safetensors"
    save_file({key: value.half() for key, value in load_file(path).items()}, path, {"format": "pt"})
    ran = cli("train", "--init", tmp_path / "model", *files(texts), "--out", tmp_path / "out", "--set", *QUICK)
    assert ran.code == 0, ran.err
    figures = records(tmp_path / "out", "validation.jsonl")
    assert [row["step"] for row in figures] == [0, 30, 60]
    assert figures[-1]["loss"] < figures[0]["loss"] - 1
    before, after = (load_file(tmp_path / folder / "model.safetensors") for folder in ("model", "out"))
    assert {key: value.shape for key, value in before.items()} == {key: value.shape for key, value in after.items()}
    assert all(not torch.equal(before[key].float(), after[key]) for key in before)
    assert {value.dtype for value in after.values()} == {torch.float32}
    for file in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (tmp_path / "out" / file).read_bytes() == (tmp_path / "model" / file).read_bytes()
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == {**config, "dtype": "float32"}
    scored = json.loads(cli("score", tmp_path / "out", "--source", texts / "valid.txt", "--stride", "16").out)
    assert scored["perplexity"] < figures[0]["perplexity"] / 2
    assert "recipe | tune-lm from the weights of `model`" in (tmp_path / "out" / "README.md").read_text(
        encoding="utf-8"
    )


def test_the_end_token_of_the_model_separates_documents(cli: Cli, texts: Path, tmp_path: Path) -> None:
    write_tiny(tmp_path / "model", "gpt2")
    cutter = FINE_TUNING.read(str(tmp_path / "model")).cutter
    assert (list(cutter.prefix), list(cutter.suffix)) == ([], [2])
    assert len(cutter.encode_batch(["ab"])[0]) == 2


# --- Unsupported options


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--valid", "5pairs"], "--valid 5pairs: running text has no pairs; hold out a part of it, such as 1%"),
        (["--set", "data.block_length=5000"], "tokens, and a block of data.block_length = 5000 needs 5,001"),
        (
            ["--set", "model.max_len=99"],
            "model.max_len = 99: a language model has data.block_length = ",
        ),
        (["--set", "model.norm=rms"], "gpt2 cannot have norm = 'rms'"),
        (["--recipe", "tiny"], "--task lm with --recipe tiny: "),
        (["--alignments", "x"], "--alignments is for translation models"),
    ],
)
def test_unsupported_options_from_scratch(
    cli: Cli, texts: Path, tmp_path: Path, more: list[str], expected: str
) -> None:
    start = ["train", "--task", "lm", *([] if "--recipe" in more else ["--recipe", "gpt"]), *files(texts)]
    assert expected in cli(*start, "--out", tmp_path / "out", *more).complaint
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["", "\n"])
def test_an_empty_file(cli: Cli, texts: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "empty.txt").write_text(text, encoding="utf-8")
    ran = cli("train", "--recipe", "gpt", "--train", tmp_path / "empty.txt", "--valid", "1%", "--out", tmp_path / "out")
    assert "empty.txt: has no text, which a language model needs" in ran.complaint


@pytest.mark.parametrize(
    ("kind", "more", "expected"),
    [
        (
            "marian",
            ["--task", "lm"],
            "is a marian model that reads a text and writes another; this task needs a decoder",
        ),
        ("bert", ["--task", "lm"], "is a bert model that reads texts; this task needs a decoder"),
        (
            "gpt2",
            ["--task", "translate"],
            "is a gpt2 model that continues texts; this task needs an encoder-decoder",
        ),
        (
            "gpt2",
            ["--task", "denoise"],
            "is a gpt2 model that continues texts; this task needs a T5, mT5, BART or mBART",
        ),
        ("gpt2", ["--set", "data.block_length=61"], "data.block_length = 61: "),
        ("gpt2", ["--set", "data.subword=characters"], "the tokenizer is that of --init"),
        ("gpt2", ["--set", "model.d_model=64"], "the shape is that of --init"),
        ("gpt2", ["--special", "<s>"], "has this token already; leave it out"),
        ("gpt2", ["--source-language", "de"], "--source-language and --target-language are for models that translate"),
    ],
)
def test_unsupported_options_with_a_folder(
    cli: Cli, texts: Path, tmp_path: Path, kind: str, more: list[str], expected: str
) -> None:
    write_tiny(tmp_path / "model", kind)
    ran = cli("train", "--init", tmp_path / "model", *files(texts), "--out", tmp_path / "out", *more)
    assert expected in ran.complaint
    assert not (tmp_path / "out").exists()


def test_a_translation_model_is_no_language_model(cli: Cli, texts: Path, model_path: Path, tmp_path: Path) -> None:
    ran = cli("train", "--task", "lm", "--init", model_path, *files(texts), "--out", tmp_path / "out")
    assert "--task lm starts from a decoder (GPT-2, LLaMA), which this is not" in ran.complaint


def test_ids_outside_the_vocabulary(cli: Cli, texts: Path, tmp_path: Path) -> None:
    write_tiny(tmp_path / "model", "gpt2", {"vocab_size": 100})
    ran = cli("train", "--init", tmp_path / "model", *files(texts), "--out", tmp_path / "out")
    assert "model: the tokenizer gives the id " in ran.complaint and "the network has 100 tokens" in ran.complaint

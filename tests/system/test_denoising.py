"""Denoising pre-training: masked tokens are restored, resumed runs are exact, a translation model starts from it."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

import headwise
from headwise.config.data import TranslationData
from headwise.text.tokens.tokenizer import Tokenizer

RECIPE = """
[model]
d_model = 48
d_ff = 96
n_heads = 4
n_encoder_layers = 1
n_decoder_layers = 1
dropout = 0.0

[data]
vocab_size = 300

[train]
tokens_per_batch = 700
learning_rate = 0.007
warmup_steps = 50
schedule = "linear"
label_smoothing = 0.0
validate_bleu = 20
best_metric = "bleu"
average = 1
threads = 1
log_every = 10

[decode]
beam_size = 2
max_length_factor = 1.0
max_length_extra = 6
"""
ALPHABETS = ("abcdefghij", "klmnopqrst")  # of two languages: each text counts up from some letter


def counting(n: int, alphabet: str, seed: int) -> list[str]:
    rng = random.Random(seed)
    starts = [(rng.randrange(len(alphabet)), rng.randint(4, 9)) for _ in range(n)]
    return [" ".join(alphabet[(start + k) % len(alphabet)] for k in range(length)) for start, length in starts]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    for side, alphabet in zip(("en", "de"), ALPHABETS, strict=True):
        for name, n, seed in (("mono", 2000, 1), ("check", 40, 2), ("pairs", 60, 3)):
            lines = "".join(f"{line}\n" for line in counting(n, alphabet, seed))
            (folder / f"{name}.{side}").write_text(lines, encoding="utf-8")
    (folder / "toy.toml").write_text(RECIPE, encoding="utf-8")
    return folder


def command(files: Path, out: Path, steps: int, *more: Any) -> list[Any]:
    texts = ["--train", files / "mono.en", files / "mono.de", "--valid", files / "check.en", files / "check.de"]
    settings = ["--set", f"train.max_steps={steps}", *more]
    return [
        "train",
        "--task",
        "denoise",
        "--recipe",
        files / "toy.toml",
        "--device",
        "cpu",
        *texts,
        "--out",
        out,
        *settings,
    ]


@pytest.fixture(scope="module")
def stage(files: Path, cli: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has begun to learn to count in two languages; read only."""
    out = tmp_path_factory.mktemp("stage") / "stage1"
    ran = cli(*command(files, out, 30))
    assert ran.code == 0, ran.err
    assert "training on 4,000 of 4,000 texts\n" in ran.err
    return out


@pytest.mark.thorough
def test_masked_tokens_are_restored(files: Path, cli: Any, tmp_path: Path) -> None:
    """A random guess is right once in ten times, or in twenty if the language is unknown."""
    assert cli(*command(files, tmp_path / "out", 250)).code == 0
    model = headwise.load(tmp_path / "out", "cpu")
    texts = [text for alphabet in ALPHABETS for text in counting(20, alphabet, 4)]
    masked = [" ".join([first, "<mask>", *rest]) for first, _, *rest in map(str.split, texts)]
    right = sum(found.text == text for found, text in zip(model.restore(masked), texts, strict=True))
    assert right >= 0.8 * len(texts)


@pytest.mark.thorough
def test_a_run_is_resumed_exactly(files: Path, cli: Any, tmp_path: Path) -> None:
    more = ["train.checkpoint_every=7", "train.validate_every=7", "train.log_every=1", "data.bpe_dropout=0.1"]
    assert cli(*command(files, tmp_path / "whole", 20, *more)).code == 0
    for steps in (9, 20):
        ran = cli(*command(files, tmp_path / "parts", steps, *more, "train.schedule=constant"), "--resume")
        assert ran.code == 0, ran.err
    assert cli(*command(files, tmp_path / "constant", 20, *more, "train.schedule=constant")).code == 0
    losses = [
        [json.loads(line)["loss"] for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("parts", "constant")
    ]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 20


@pytest.mark.thorough
def test_translation_starts_from_it(stage: Path, files: Path, cli: Any, tmp_path: Path) -> None:
    pairs = [files / "pairs.en", files / "pairs.de"]
    run = ["train", "--init", stage, "--train", *pairs, "--valid", *pairs, "--device", "cpu", "--out", tmp_path / "out"]
    settings = ["train.max_steps=40", "train.log_every=1", "train.learning_rate=0.003", "train.warmup_steps=1"]
    ran = cli(*run, "--set", *settings)
    assert ran.code == 0, ran.err
    model = headwise.load(tmp_path / "out", "cpu")
    assert isinstance(model, headwise.Model)
    assert model.config.model.task == "translate"
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == (stage / "tokenizer.json").read_bytes()
    nll = [json.loads(line)["nll"] for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    assert nll[-1] < 1.0 < nll[0]  # it has 60 pairs; a fresh model starts at ln(300) = 5.7
    assert "from the weights of `stage1`" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def test_validation_texts_are_removed_from_training(files: Path, cli: Any, tmp_path: Path) -> None:
    run = ["train", "--task", "denoise", "--recipe", files / "toy.toml", "--device", "cpu", "--valid", "5%"]
    ran = cli(*run, "--train", files / "pairs.en", files / "pairs.de", "--out", tmp_path, "--set", "train.max_steps=1")
    assert ran.code == 0, ran.err
    assert "validating on 6 texts held out of the training files (5%)" in ran.err


def test_info_and_card_describe_it(stage: Path, cli: Any) -> None:
    rows = dict(line.split(maxsplit=1) for line in cli("info", stage).lines if not line.startswith("training data"))
    assert rows["model"].startswith("denoising, trained with Headwise")
    assert "1 + 1 layers" in rows["architecture"]
    assert "BLEU" in rows["validation"]
    card = (stage / "README.md").read_text(encoding="utf-8")
    assert "mono.en, mono.de: 4,000 texts (dropped: none)" in card
    assert "headwise train --init ." in card


@pytest.mark.parametrize(
    "arguments",
    [
        ["translate", "{}", "{file}"],
        ["evaluate", "{}", "--source", "{file}", "--reference", "{file}"],
        ["score", "{}", "--source", "{file}", "--target", "{file}"],
        ["classify", "{}", "{file}"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_it_does_not_translate(arguments: list[str], stage: Path, files: Path, cli: Any) -> None:
    complaint = cli(*(argument.format(stage, file=files / "check.en") for argument in arguments)).complaint
    kind = "this model restores texts" if arguments[0] in ("evaluate", "score") else "was trained to denoise, not to "
    assert (
        f"{stage}: {kind}" in complaint
        and "a translator starts from it" in complaint
        and "`headwise train --init" in complaint
    )


def test_unsupported_options(stage: Path, files: Path, cli: Any, tmp_path: Path) -> None:
    out, given = tmp_path / "out", tmp_path / "tokenizer.json"
    Tokenizer.train(["a b c"], TranslationData(vocab_size=270)).save(given)
    complaint = cli(*command(files, out, 1, f"data.tokenizer={given}")).complaint
    assert f"data.tokenizer = {given}: has no mask token <mask>" in complaint
    started = cli(*command(files, out, 1), "--init", stage).complaint
    assert "--task denoise starts from a T5, mT5, BART or mBART, which this is not" in started
    table = tmp_path / "a.tsv"
    table.write_text("a\tb\n", encoding="utf-8")
    run = [
        "train",
        "--task",
        "denoise",
        "--recipe",
        files / "toy.toml",
        "--train",
        table,
        "--valid",
        table,
        "--out",
        out,
    ]
    assert f"{table}: expected plain text" in cli(*run).complaint
    assert not out.exists()

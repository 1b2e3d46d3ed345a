"""From one model to the next: a run that starts from a model, and a corpus that a model writes."""

import json
from pathlib import Path
from typing import Any

import pytest

import sightline
from sightline.data.corpus import parse_corpora, read_pairs
from sightline.decode.translator import Translation
from sightline.distill import distill


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, task: Any, write: Any) -> list[str]:
    """Options naming a training and a validation corpus of the copying task."""
    folder = tmp_path_factory.mktemp("files")
    train, valid = write(folder / "train", task(300, 5)), write(folder / "valid", task(20, 6))
    return ["--train", *map(str, train), "--valid", *map(str, valid)]


def test_a_run_starts_from_a_model(model_path: Path, files: list[str], cli: Any, tmp_path: Path) -> None:
    out = tmp_path / "more"
    settings = ["train.max_steps=3", "train.log_every=1", "train.threads=1", "train.learning_rate=1e-5"]
    settings += ["train.tokens_per_batch=500", "train.validate_bleu=0", "model.d_model=64", "model.dropout=0.0"]
    command = ["train", "--recipe", "tiny", *files, "--device", "cpu", "--set", *settings]
    assert cli(*command, "--init", model_path, "--out", out).code == 0
    first, more = sightline.load(model_path, "cpu"), sightline.load(out, "cpu")
    assert more.config.model == first.config.model  # dropout is 0 in both; the recipe's shape gave way
    assert (out / "tokenizer.json").read_bytes() == (model_path / "tokenizer.json").read_bytes()
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert lines[0]["nll"] < 0.5  # a fresh model starts at ln(280) = 5.6
    assert model_path.name in (out / "README.md").read_text()
    assert more.translate(["a b c"], beam_size=1)[0].text == "a b c"


def test_a_run_does_not_start_from_what_is_no_model(files: list[str], cli: Any, tmp_path: Path) -> None:
    ran = cli("train", "--recipe", "tiny", *files, "--init", tmp_path / "none", "--out", tmp_path / "out")
    assert "no such model directory" in ran.complaint
    assert not (tmp_path / "out").exists()


def test_a_model_writes_a_corpus(model_path: Path, files: list[str], cli: Any, tmp_path: Path) -> None:
    out = tmp_path / "distilled.jsonl"
    assert cli("distill", model_path, *files[:3], "-o", out, "--beam-size", 2, "--workers", 1).code == 0
    taught, given = (list(read_pairs(parse_corpora(names))) for names in ([str(out)], files[1:3]))
    assert [src for src, _ in taught] == [src for src, _ in given]
    sources = [src for src, _ in given]
    translations = sightline.load(model_path, "cpu").translate(sources, beam_size=2)
    assert [tgt for _, tgt in taught] == [translation.text for translation in translations]


def test_another_ending_is_refused(model_path: Path, files: list[str], cli: Any, tmp_path: Path) -> None:
    assert ".jsonl" in cli("distill", model_path, *files[:3], "-o", tmp_path / "out.txt").complaint


def translation(text: str, *others: str) -> Translation:
    return Translation(text, 0.0, 0.0, [], [], [], 1, tuple(translation(other) for other in others))


def test_interpolation_takes_what_is_closest_to_the_reference() -> None:
    pairs = [("eins zwei", "one two"), ("", "nothing"), ("drei", "three")]
    found = [translation("two one", "one two", "two"), translation(""), translation("three", "tree")]
    assert list(distill(pairs, lambda _: found)) == [("eins zwei", "two one"), ("drei", "three")]
    assert list(distill(pairs, lambda _: found, interpolate=True)) == [("eins zwei", "one two"), ("drei", "three")]

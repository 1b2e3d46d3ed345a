"""Learning from files to translations: a task that needs attention across positions is solved."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import headwise
from headwise.pytorch.tasks.run import TrainRequest
from headwise.pytorch.tasks.train import train_model

Learn = Callable[..., tuple[headwise.Model, Path]]


def exact(model: headwise.Model, pairs: list[tuple[str, str]], **settings: Any) -> float:
    outputs = model.translate([src for src, _ in pairs], **settings)
    return sum(output.text == tgt for output, (_, tgt) in zip(outputs, pairs, strict=True)) / len(pairs)


@pytest.mark.slow
def test_training_to_copy(copying: tuple[headwise.Model, Path], task: Callable[..., Any]) -> None:
    pairs = task(300, seed=3)
    assert exact(copying[0], pairs, beam_size=1) >= 0.99
    assert exact(copying[0], pairs, beam_size=4) >= 0.99


@pytest.mark.thorough
@pytest.mark.slow
def test_training_to_reverse(learn: Learn, task: Callable[..., Any]) -> None:
    def backwards(letters: list[str]) -> list[str]:
        return letters[::-1]

    model, _ = learn(backwards, steps=1000)
    assert exact(model, task(300, 3, backwards), beam_size=1) >= 0.99


def test_a_trained_model_is_loaded_unchanged(copying: tuple[headwise.Model, Path]) -> None:
    model, path = copying
    again = headwise.load(path, device="cpu")
    lines = ["a b c", "j", "", "d d d d d d"]
    assert again.translate(lines) == model.translate(lines)
    assert again.config == model.config
    assert again.about["corpus"]["pairs"] == 6000


def test_a_model_directory_is_self_contained(copying: tuple[headwise.Model, Path]) -> None:
    _, path = copying
    files = [file for file in path.rglob("*") if file.is_file()]
    assert {file.suffix for file in files} == {".json", ".jsonl", ".safetensors", ".md", ""}
    for file in files:
        assert str(path.parent).encode() not in file.read_bytes(), file.name
    assert {file.name for file in path.iterdir()} == {
        "README.md",
        "SHA256SUMS",
        "checkpoints",
        "config.json",
        "generation_config.json",
        "metrics.jsonl",
        "model.safetensors",
        "tokenizer.json",
        "validation.jsonl",
    }


def test_the_model_card_describes_the_training(copying: tuple[headwise.Model, Path]) -> None:
    card = (copying[1] / "README.md").read_text(encoding="utf-8")
    for fact in ("train.src, train.tgt: 6,000 pairs", "recipe | toy, seed 1", "1 + 1 layers", "step 500"):
        assert fact in card


def test_the_callers_random_state_is_unchanged(
    tmp_path: Path, task: Callable[..., Any], write: Callable[..., list[Path]]
) -> None:
    files = write(tmp_path / "few", task(20, 1))
    before = torch.get_rng_state()
    settings = ["train.max_steps=1", "data.vocab_size=280", "model.d_model=16", "train.validate_bleu=0"]
    names = [str(path) for path in files]
    train_model(TrainRequest("tiny", names, names, str(tmp_path / "model"), settings, device="cpu", show=False))
    assert torch.equal(torch.get_rng_state(), before)

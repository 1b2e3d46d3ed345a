"""Validation of every task in three shards, as by three processes, gives the metrics of one process."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from headwise.config.tasks import TASKS
from headwise.pytorch.tasks.run import TrainRequest
from headwise.pytorch.tasks.train import train_model
from headwise.pytorch.training.parallel import interleave
from headwise.pytorch.training.trainer import Trainer
from headwise.pytorch.training.validation import Shard

SHAPE = ["model.d_model=16", "model.d_ff=24", "model.n_heads=2", "train.threads=1"]
DECODER, PIECES = ["model.n_decoder_layers=1"], ["data.vocab_size=290"]
BLOCKS = [*SHAPE, *PIECES, "train.tokens_per_batch=32", "data.block_length=16"]
LINES = [*SHAPE, *PIECES, "train.tokens_per_batch=40"]
PICTURES = [*SHAPE, "model.image_size=8", "model.patch_size=4", "train.tokens_per_batch=8"]
WORDS = ("dog", "cat", "owl", "sun", "tea", "car")
RNG = Random(4)


def lines(n: int) -> list[str]:
    return [" ".join(RNG.choices(WORDS, k=RNG.randint(1, 6))) for _ in range(n)]


def texts(folder: Path) -> list[Path]:
    return written(folder / "text.txt", "\n".join(lines(40)))


def pairs(folder: Path) -> list[Path]:
    return written(folder / "pairs.tsv", "\n".join(f"{one}\t{one[::-1]}" for one in lines(45)))


def labelled(folder: Path) -> list[Path]:
    return written(folder / "labels.tsv", "\n".join(f"{one}\t{len(one) % 3}" for one in lines(30)))


def series(folder: Path) -> list[Path]:
    return written(folder / "t.csv", "\n".join(["date,a", *(f"{row},{RNG.random():.3f}" for row in range(200))]))


def tagged(folder: Path) -> list[Path]:
    sentences = [one.split() for one in lines(20)]
    rows = ("".join(f"{word} {'B-X' if word == 'owl' else 'O'}\n" for word in words) for words in sentences)
    return written(folder / "a.conll", "\n".join(rows))


def questions(folder: Path) -> list[Path]:
    asked = []
    for i, one in enumerate(lines(12)):
        context = f"{one} in Rome and {one} again"
        answer = {"text": "Rome", "answer_start": context.index("Rome")}
        asked.append({"context": context, "qas": [{"id": str(i), "question": "where?", "answers": [answer]}]})
    return written(folder / "q.json", json.dumps({"data": [{"paragraphs": asked}]}))


def images(folder: Path) -> list[Path]:
    pytest.importorskip("PIL.Image")
    from PIL import Image

    generator, rows = np.random.default_rng(0), list[str]()
    for i, caption in enumerate(lines(9)):
        Image.fromarray(generator.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(folder / f"{i}.png")
        rows.append(f"{i}.png\t{caption}")
    return written(folder / "pictures.tsv", "\n".join(rows))


def written(path: Path, text: str) -> list[Path]:
    path.write_text(f"{text}\n", encoding="utf-8")
    return [path]


CASES: dict[str, tuple[str, Callable[[Path], list[Path]], list[str]]] = {
    "translate": ("tiny", pairs, [*LINES, "train.validate_bleu=40", "decode.max_length_extra=3"]),
    "denoise": ("tiny", texts, [*LINES, "model.task=denoise", "train.validate_bleu=5", "decode.max_length_extra=3"]),
    "classify": ("classify", labelled, LINES),
    "tag": ("tag", tagged, [*LINES, "data.max_length=12"]),
    "answer": ("answer", questions, [*LINES, "data.max_length=24", "data.overlap=4"]),
    "embed": ("embed", pairs, LINES),
    "forecast": (
        "forecast",
        series,
        [*SHAPE, "data.window=8", "data.patch=1", "data.horizon=2", "data.season=4", "train.tokens_per_batch=16"],
    ),
    "lm": ("gpt", texts, [*BLOCKS, *DECODER]),
    "mlm": ("bert", texts, BLOCKS),
    "rtd": ("electra", texts, BLOCKS),
    "plm": ("xlnet", texts, BLOCKS),
    "label": ("vit", images, PICTURES),
    "caption": ("caption", images, [*PICTURES, *PIECES, *DECODER]),
}


def test_all_tasks_are_covered() -> None:
    assert {*TASKS} - {*CASES} == {"transcribe"}  # same code as "caption"


@pytest.mark.few(6)
@pytest.mark.parametrize("task", CASES)
def test_metrics_of_three_shards(task: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    recipe, write, settings = CASES[task]
    seen: list[Any] = []

    def share_out(trainer: Trainer, started: float) -> str:
        trainer.model.eval()
        job = trainer.validation
        whole, *shares = [
            job.outputs(trainer.model, trainer.device, shard)
            for shard in (Shard(), Shard(0, 3), Shard(1, 3), Shard(2, 3))
        ]
        seen.extend([whole, json.loads(json.dumps(shares)), job.figures])
        return "SIGTERM"

    monkeypatch.setattr(Trainer, "run", share_out)
    files = [str(path) for path in write(tmp_path)]
    layers = [] if recipe == "gpt" else ["model.n_encoder_layers=1"]
    layers += DECODER if recipe == "tiny" else []
    valid = [] if task == "forecast" else files
    train_model(TrainRequest(recipe, files, valid, str(tmp_path / "m"), [*settings, *layers], device="cpu", show=False))
    whole, shares, figures = seen
    for name, column in whole.items():
        assert len(column) > 3
        assert max(len(share[name]) for share in shares) == -(-len(column) // 3)
    together = {name: interleave([share[name] for share in shares]) for name in whole}
    for name in {"text", "written", "answer", "found"} & {*whole}:
        assert together[name] == whole[name]
    expected = figures(whole)
    assert "loss" in expected
    assert figures(together) == pytest.approx(expected, rel=1e-5)

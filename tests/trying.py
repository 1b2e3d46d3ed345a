"""Runs every command that works for some models only, with a model, to see whether it works."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from headwise.cli import main
from headwise.cli.commands import serve
from headwise.serve.explorer.server import ExplorerServer

SQUAD = {
    "data": [
        {
            "paragraphs": [
                {
                    "context": "a dog",
                    "qas": [{"id": "1", "question": "who", "answers": [{"text": "dog", "answer_start": 2}]}],
                }
            ]
        }
    ]
}


ARGUMENTS: dict[str, list[str]] = {  # of each command, in the variants that models need; {} is the folder of inputs
    "translate": ["{}/lines.txt"],
    "generate": ["ab --max-new-tokens 2"],
    "fill": ["a<mask>b"],
    "embed": ["{}/lines.txt -o {}/vectors.npy"],
    "classify": ["{}/lines.txt"],
    "rerank": ["dog {}/lines.txt"],
    "tag": ["{}/lines.txt"],
    "answer": ["{}/squad.json"],
    "label": ["{}/dog.png"],
    "caption": ["{}/dog.png --max-new-tokens 2"],
    "transcribe": ["{}/dog.wav --no-fallback"],
    "forecast": ["{}/series.csv"],
    "score": ["--source {}/lines.txt", "--source {}/lines.txt --target {}/lines.txt"],
    "evaluate": [
        "--source {}/lines.txt",
        "--source {}/lines.txt --reference {}/lines.txt",
        *(f"--source {{}}/{name}" for name in ("pairs.tsv", "labels.tsv", "tags.conll", "squad.json", "pictures.tsv")),
        *(f"--source {{}}/{name}" for name in ("captions.tsv", "sounds.tsv", "numbers.tsv", "series.csv", "order.tsv")),
    ],
    "align": ["--source {}/lines.txt --target {}/lines.txt"],
    "inspect": [f"{given} --format json -o {{}}/view.json" for given in ("ab", "{}/dog.png", "{}/dog.wav")],
    "explore": ["--port 0"],
    "prune": [
        f"--heads 1 --out {{}}/pruned --source {{}}/{files}"
        for files in (
            *("lines.txt", "lines.txt --target {}/lines.txt"),
            *("labels.tsv", "numbers.tsv", "dog.png --target {}/dog.txt", "dog.wav", "series.csv", "order.tsv"),
        )
    ],
    "distill": ["--train {}/pairs.tsv -o {}/distilled.jsonl"],
    "backtranslate": ["--text {}/lines.txt -o {}/back.jsonl"],
    "shortlist": ["--train {}/pairs.tsv"],
    "serve": ["--port 0 --languages en-de"],
    "tune": ["--train {}/pairs.tsv --valid {}/pairs.tsv --out {}/tuned --set train.max_steps=1"],
    "export": ["{}/exported --to hf", "{}/exported --to ctranslate2"],
    "pack": [""],
}


WITHOUT_DEVICE = ("shortlist", "export", "pack")


def write_inputs(folder: Path) -> None:
    """Write files for every command."""
    soundfile, image = pytest.importorskip("soundfile"), pytest.importorskip("PIL.Image")
    texts = {
        "lines.txt": "a dog\nb cat\n",
        "pairs.tsv": "a dog\tein Hund\nb\tc\n",
        "dog.txt": "dog\n",
        "labels.tsv": "a dog\tB-x\nb\tO\n",
        "numbers.tsv": "a dog\t0.5\nb\t-1\n",
        "order.tsv": "a b\tfirst\nb a\tsecond\n",
        "tags.conll": "a O\ndog B-x\n\n",
        "squad.json": json.dumps(SQUAD),
        "pictures.tsv": "dog.png\tdog\ndog.png\tcat\n",
        "captions.tsv": "dog.png\ta dog\n",
        "sounds.tsv": "dog.wav\ta dog\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    series = [f"2020-{hour},{hour % 12},{hour % 7}" for hour in range(60)]
    (folder / "series.csv").write_text("\n".join(["date,a,b", *series, ""]), encoding="utf-8")
    soundfile.write(folder / "dog.wav", np.sin(np.arange(9_000) / 9), 16_000)
    image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(folder / "dog.png")


def tried(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Path], bool]:
    """Whether a command works for the model in a folder; files are written into `folder`, and servers end at once."""
    monkeypatch.setattr(ExplorerServer, "serve_forever", lambda self: None)
    monkeypatch.setattr(serve, "serve", lambda models, settings: None)
    numbers = iter(range(1000))

    def works(command: str, model: Path) -> bool:
        for arguments in ARGUMENTS[command]:
            out = folder / f"run{next(numbers)}"
            out.mkdir()
            write_inputs(out)
            words = [word.replace("{}", str(out)) for word in arguments.split()]
            if main([command, str(model), *words, *([] if command in WITHOUT_DEVICE else ["--device", "cpu"])]) == 0:
                return True
        return False

    return works

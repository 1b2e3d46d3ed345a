"""A model has the same figures in the validation of training and in `evaluate`, for every task and kind of file.

Not here: tasks whose validation has noise of its own, so that no file gives the same figures: denoising, replaced-token
detection and permutation language modelling.
"""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from killing import records
from tiny_families import HEARING, vocabulary, write_tiny
from tokenizers import processors
from trying import SQUAD

from headwise.config.tasks import TASKS
from headwise.tasks.run import TrainRequest
from headwise.tasks.train import train_model

Cli = Callable[..., Any]
QUICK = ["train.max_steps=2", "train.validate_every=2", "train.log_every=2", "train.learning_rate=0.01",
         "train.warmup_steps=1", "train.tokens_per_batch=200", "train.threads=1"]  # fmt: skip
ENCODER = ["model.d_model=16", "model.d_ff=24", "model.n_heads=2", "model.n_encoder_layers=1"]
DECODER = ["model.d_model=16", "model.d_ff=24", "model.n_heads=2", "model.n_decoder_layers=1"]
WORDS = ["the", "dog", "runs", "far", "and", "a", "cat", "sees", "it", "run"]
LINES = [" ".join(WORDS[(i * j + j) % len(WORDS)] for j in range(2 + i % 4)) for i in range(24)]
DOCUMENTS = [json.dumps({"text": line}) for line in LINES]
LABELLED = [f"{line}\t{'even' if len(line) % 2 else 'odd'}" for line in LINES]
PAIRS = [json.dumps({"src": line, "tgt": line.upper()}) for line in LINES]
TAGGED = [json.dumps({"tokens": line.split(), "tags": ["B-X" if w == "dog" else "O" for w in line.split()]})
          for line in LINES]  # fmt: skip
CONLL = ["\n".join(f"{w} {'B-X' if w == 'dog' else 'O'}" for w in line.split()) + "\n" for line in LINES]
SERIES = ["date,a,b", *(f"{row},{row % 12},{row % 7}" for row in range(90))]
BLOCKS = [*DECODER, "data.subword=characters", "data.block_length=400"]
MASKED = [*ENCODER, "data.subword=characters", "data.block_length=40", "data.mask_share=0.4"]
SIZES = [*ENCODER, "data.vocab_size=270"]
PICTURES = [f"{name}.png\t{name}" for name in ("red", "blue", "red", "blue")]
WHISPER = {"max_source_positions": 20}
BOTH = [*SIZES, "model.n_decoder_layers=1", "train.validate_bleu=24", "decode.beam_size=1"]

# Task, recipe or kind of pretrained model, settings, name and lines of the file, metrics.
CASES: dict[str, tuple[str, str, list[str], str, list[str], tuple[str, ...]]] = {
    "text": ("lm", "gpt", BLOCKS, "a.txt", LINES, ("loss", "perplexity")),
    "compressed": ("lm", "gpt", BLOCKS, "a.txt.gz", LINES, ("loss", "perplexity")),
    "documents": ("lm", "gpt", BLOCKS, "a.jsonl", DOCUMENTS, ("loss", "perplexity")),
    "pretrained-documents": ("lm", "init:gpt2", ["data.block_length=60"], "a.jsonl", DOCUMENTS[:3], ("loss",)),
    "masked-lines": ("mlm", "bert", MASKED, "a.txt", LINES, ("loss", "accuracy")),
    "masked-documents": ("mlm", "bert", MASKED, "a.jsonl", DOCUMENTS, ("loss", "accuracy")),
    "pretrained-blocks": ("mlm", "init:bert", ["data.block_length=24", "data.reading=blocks"], "a.txt", LINES,
                          ("loss", "accuracy")),
    "labels": ("classify", "classify", SIZES, "a.tsv", LABELLED, ("accuracy", "macro_f1")),
    "compressed-labels": ("classify", "classify", SIZES, "a.tsv.gz", LABELLED, ("accuracy", "macro_f1")),
    "pretrained-labels": ("classify", "init:bert", [], "a.tsv", LABELLED, ("accuracy", "macro_f1")),
    "tags": ("tag", "init:bert", [], "a.conll", CONLL, ("f1",)),
    "tag-objects": ("tag", "init:bert", [], "a.jsonl", TAGGED, ("f1",)),
    "questions": ("answer", "init:bert", [], "a.json", [json.dumps(SQUAD)], ("exact_match", "f1")),
    "vectors": ("embed", "init:bert", [], "a.tsv", [f"{line}\t{line} too" for line in LINES], ("accuracy", "mrr")),
    "series": ("forecast", "forecast", [*ENCODER, "data.window=12", "data.horizon=3", "data.season=7"], "a.csv", SERIES,
               ("mae",)),
    "pictures": ("label", "vit", [*ENCODER, "model.image_size=8", "model.patch_size=4"], "a.tsv", PICTURES,
                 ("accuracy", "macro_f1")),
    "picture-folders": ("label", "vit", [*ENCODER, "model.image_size=8", "model.patch_size=4"], "folders", [],
                        ("accuracy", "macro_f1")),
    "captions": ("caption", "init:captions", ["train.tokens_per_batch=12"], "a.tsv", PICTURES[:2], ("bleu",)),
    "sounds": ("transcribe", "init:whisper", ["train.tokens_per_batch=60"], "a.tsv", ["dog.wav\tab", "dog.wav\tcd"],
               ("wer",)),
    "pairs": ("translate", "tiny", BOTH, "a.jsonl", PAIRS, ("bleu",)),
    "columns": ("translate", "tiny", BOTH, "a.tsv", [f"{x}\t{x.upper()}" for x in LINES], ("bleu",)),
}  # fmt: skip


def write_inputs(folder: Path, name: str, lines: list[str]) -> Path:
    """The file of a case, and the pictures and sounds that it may name."""
    path, text = folder / name, "".join(f"{line}\n" for line in lines)
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    elif lines:
        path.write_text(text, encoding="utf-8")
    if "png" in text or not lines:
        image = pytest.importorskip("PIL.Image")
        for at, label in enumerate(("red", "blue")):
            for place in (folder, path / label) if not lines else (folder,):
                place.mkdir(parents=True, exist_ok=True)
                image.new("RGB", (8, 8), (200 * (1 - at), 10, 200 * at)).save(place / f"{label}.png")
    if "wav" in text:
        pytest.importorskip("jiwer")
        soundfile = pytest.importorskip("soundfile")
        soundfile.write(folder / "dog.wav", np.sin(np.arange(3000) / 9), 16_000)
    return path


def write_model(folder: Path, kind: str) -> str:
    changes = WHISPER if kind == "whisper" else {}
    write_tiny(folder, kind, changes, HEARING if kind == "whisper" else None,
               mask_token="<mask>", bos_token="<s>", eos_token="</s>")  # fmt: skip
    if kind == "bert":
        text, ends = vocabulary(behind=False), [("<s>", 0), ("</s>", 2)]
        text.post_processor = processors.TemplateProcessing("<s> $A </s>", "<s> $A </s> $B:1 </s>:1", ends)
        text.save(str(folder / "tokenizer.json"))
    sizes = {"whisper": {"feature_size": 8}, "captions": {"size": 8, "do_resize": True}}
    if kind in sizes:
        (folder / "preprocessor_config.json").write_text(json.dumps(sizes[kind]))
    return str(folder)


@pytest.fixture
def trained(tmp_path: Path) -> Callable[[str], tuple[Path, Path, dict[str, Any]]]:
    """Trains the model of a case; returns its folder, the file, and the figures of the kept model."""

    def train(case: str) -> tuple[Path, Path, dict[str, Any]]:
        task, start, settings, name, lines, _ = CASES[case]
        file, out = write_inputs(tmp_path, name, lines), tmp_path / "out"
        recipe, _, kind = start.partition("init:")
        init = write_model(tmp_path / "start", kind) if kind else ""
        request = TrainRequest(recipe, [str(file)] * 2, [str(file)], str(out), [*QUICK, *settings], device="cpu",
                               show=False, task=task, init=init)  # fmt: skip
        train_model(request)
        validated = records(out, "validation.jsonl")
        return out, file, ([one for one in validated if one["best"]] or validated)[-1]

    return train


@pytest.mark.parametrize("case", CASES)
def test_figures_of_training_and_of_evaluate(case: str, trained: Any, cli: Cli) -> None:
    task, *_, metrics = CASES[case]
    out, file, validated = trained(case)
    more = ["--source-language", "en"] if task == "transcribe" else []
    ran = cli("evaluate", out, "--source", file, "--format", "json", *more)
    assert ran.code == 0, ran.err
    report = json.loads(ran.out)
    report |= {"mae": report["model"]["mae"]} if task == "forecast" else {}
    found = {name: report.get(name, report.get(name.upper())) for name in metrics}
    scores = {name: value["score"] if isinstance(value, dict) else value for name, value in found.items()}
    assert scores == pytest.approx({name: validated[name] for name in metrics}, rel=1e-4, abs=1e-6)


def test_every_task_with_files_for_evaluate_is_compared() -> None:
    assert {task for task, *_ in CASES.values()} == TASKS.keys() - {"denoise", "rtd", "plm"}


@pytest.mark.parametrize("case", ["text", "documents"])
def test_score_reads_what_evaluate_reads(case: str, trained: Any, cli: Cli) -> None:
    out, file, validated = trained(case)
    ran = cli("score", out, "--source", file)
    assert json.loads(ran.out)["perplexity"] == pytest.approx(validated["perplexity"], rel=1e-4)


def test_a_file_of_pairs_is_scored_and_compared_as_in_training(trained: Any, cli: Cli, tmp_path: Path) -> None:
    out, file, _ = trained("columns")
    sides = [tmp_path / "a.src", tmp_path / "a.tgt"]
    rows = [row.split("\t") for row in file.read_text(encoding="utf-8").splitlines()]
    for side, lines in zip(sides, zip(*rows, strict=True), strict=True):
        side.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    one, two = (cli("score", out, "--source", *rest) for rest in ([file], [sides[0], "--target", sides[1]]))
    assert (one.out, one.err) == (two.out, two.err)

"""Tiny training runs for every task and kind of file: the files, and pretrained models to start from."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from tiny_families import HEARING, vocabulary, write_tiny
from tokenizers import processors
from trying import SQUAD

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
    "compressed-documents": ("lm", "gpt", BLOCKS, "a.jsonl.gz", DOCUMENTS, ("loss", "perplexity")),
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
    "series": ("forecast", "forecast", [*ENCODER, "data.window=12", "data.patch=1", "data.horizon=3",
                                        "data.season=7"], "a.csv", SERIES, ("mae",)),
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

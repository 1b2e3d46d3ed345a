"""Fine-tuning an encoder for text embeddings: the result is a folder of sentence-transformers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_families import vocabulary, write_tiny
from tokenizers import processors

import headwise
from headwise.pytorch.tasks.embedding import contrastive_loss

Cli = Callable[..., Any]
QUICK = ["train.max_steps=40", "train.validate_every=20", "train.checkpoint_every=20", "train.log_every=20",
         "train.learning_rate=0.005", "train.warmup_steps=5", "train.threads=1", "data.max_length=20"]  # fmt: skip
WORDS = ["dog", "cat", "owl", "sun", "tea", "car", "sea", "hat", "pen", "cup", "map", "ice"]


def write(folder: Path) -> Path:
    """A BERT whose tokenizer adds special tokens around a text."""
    write_tiny(folder, "bert")
    text = vocabulary(behind=False)
    text.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    text.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """A word, and a sentence with it."""
    (tmp_path / "pairs.tsv").write_text("".join(f"{word}\tI saw a {word} there\n" for word in WORDS))
    return tmp_path / "pairs.tsv"


def train(cli: Cli, start: Path, pairs: Path, out: Path, *more: Any) -> Any:
    files = ["--train", pairs, "--valid", pairs, "--out", out]
    return cli("train", "--task", "embed", "--init", start, *files, "--set", *QUICK, *more)


def test_related_texts_are_found_and_the_layout_is_complete(cli: Cli, pairs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = train(cli, write(tmp_path / "model"), pairs, out, "train.max_steps=120")
    assert ran.code == 0, ran.err
    assert "training on 12 lines of 2 texts, validating on 12" in ran.err
    rows = [json.loads(line) for line in (out / "validation.jsonl").read_text().splitlines()]
    assert rows[0]["mrr"] < 0.6 < 0.9 < rows[-1]["mrr"]
    modules = [module["type"] for module in json.loads((out / "modules.json").read_text())]
    assert modules == [f"sentence_transformers.models.{name}" for name in ("Transformer", "Pooling", "Normalize")]
    assert json.loads((out / "sentence_bert_config.json").read_text())["max_seq_length"] == 20
    assert json.loads((out / "config.json").read_text())["architectures"] == ["BertModel"]
    assert not any("cls." in key for key in load_file(out / "model.safetensors"))
    found = json.loads(cli("evaluate", out, "--source", pairs, "--format", "json").out)
    assert found["mrr"] == pytest.approx(max(row["mrr"] for row in rows)) and found["texts"] == 12
    vectors = headwise.load(out, "cpu").embed(["dog", "I saw a dog there", "ice"])
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors[0] @ vectors[1] > vectors[2] @ vectors[1]
    assert "# A vector model" in (out / "README.md").read_text()


@pytest.mark.thorough
def test_a_run_is_resumed_exactly(cli: Cli, pairs: Path, tmp_path: Path) -> None:
    start, settings = write(tmp_path / "model"), ["train.schedule=constant"]
    assert train(cli, start, pairs, tmp_path / "whole", *settings).code == 0
    assert train(cli, start, pairs, tmp_path / "parts", *settings, "train.max_steps=20").code == 0
    ran = train(cli, start, pairs, tmp_path / "parts", *settings, "--resume")
    assert ran.code == 0 and "resuming after step 20" in ran.err, ran.err
    whole, parts = (load_file(tmp_path / folder / "model.safetensors") for folder in ("whole", "parts"))
    assert all(torch.equal(whole[key], parts[key]) for key in whole)


def test_the_loss_is_that_of_sentence_transformers(tmp_path: Path) -> None:
    """Its `MultipleNegativesRankingLoss`: cross-entropy of `scale` times `cos_sim`, written with torch's own cosine."""
    generator = torch.Generator().manual_seed(1)
    queries, others = (torch.randn(n, 8, generator=generator) for n in (4, 8))
    cosines = torch.nn.functional.cosine_similarity(queries[:, None], others[None], dim=-1)
    expected = torch.nn.functional.cross_entropy(20 * cosines, torch.arange(4))
    same = torch.cat([torch.eye(4), torch.zeros(4, 4)], 1).bool()
    assert torch.allclose(contrastive_loss(queries, others, same).objective / 4, expected, atol=1e-6)


def test_validation_lines_are_held_out_and_bad_lines_named(cli: Cli, pairs: Path, tmp_path: Path) -> None:
    start = write(tmp_path / "model")
    files = ["--task", "embed", "--init", start, "--train", pairs, "--set", *QUICK, "train.max_steps=2"]
    ran = cli("train", *files, "--valid", "25%", "--out", tmp_path / "out")
    assert ran.code == 0 and "training on 9 lines of 2 texts, validating on 3" in ran.err, ran.err
    pairs.write_text("a\tb\nc\n")
    refused = cli("train", *files, "--valid", pairs, "--out", tmp_path / "other").complaint
    assert "pairs.tsv: line 2 has 1 columns where the first has 2" in refused

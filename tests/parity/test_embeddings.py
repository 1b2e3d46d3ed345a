"""Folders of sentence-transformers give the vectors that `transformers` gives with the same pooling, for each family.

Tiny random networks and tokenizers that `transformers` saves; texts of several lengths in one batch.
"""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headwise

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what transformers imports
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

TEXTS = ["A dog runs.", "The cat", "Two dogs and a cat are here, are they?"]
LETTERS = [*"abcdefghijklmnopqrstuvwxyz.,?", *(f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")]
SIZES = {
    "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 60, "initializer_range": 0.25,
}  # fmt: skip
MODULES = ["Transformer", "Pooling", "Normalize"]
BERT_MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CASES: dict[str, tuple[str, str, list[str], dict[str, Any]]] = {  # class, tokenizer, its marks, more settings
    "bert": ("BertModel", "BertTokenizer", BERT_MARKS, {"pad_token_id": 0}),
    "albert": ("AlbertModel", "BertTokenizer", BERT_MARKS, {"embedding_size": 8}),
    "modernbert": ("ModernBertModel", "BertTokenizer", BERT_MARKS, {"pad_token_id": 0, "local_attention": 4}),
    "mpnet": ("MPNetModel", "MPNetTokenizer", ["<s>", "<pad>", "</s>", "<unk>", "[UNK]", "<mask>"], {}),
}


def write(folder: Path, kind: str, pooling: str) -> tuple[Any, Any]:
    """A folder of sentence-transformers; the network and the tokenizer of `transformers`."""
    name, tokenizer, marks, more = CASES[kind]
    vocabulary = {piece: i for i, piece in enumerate([*marks, *LETTERS])}
    theirs = getattr(transformers, tokenizer)(vocab=vocabulary)
    theirs.save_pretrained(folder)
    torch.manual_seed(1)
    model_class = getattr(transformers, name)
    model_class(model_class.config_class(vocab_size=len(vocabulary), **SIZES, **more)).save_pretrained(folder)
    modules = [
        {
            "idx": i,
            "name": str(i),
            "path": f"{i}_{module}" if i else "",
            "type": f"sentence_transformers.models.{module}",
        }
        for i, module in enumerate(MODULES)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    settings = {"word_embedding_dimension": 16, f"pooling_mode_{pooling}": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(settings))
    return model_class.from_pretrained(folder).eval(), theirs


@pytest.mark.parametrize("pooling", ["mean_tokens", "cls_token"])
@pytest.mark.parametrize("kind", CASES)
def test_vectors_of_texts(kind: str, pooling: str, tmp_path: Path) -> None:
    network, tokenizer = write(tmp_path, kind, pooling)
    batch = tokenizer(TEXTS, return_tensors="pt", padding=True)
    with torch.inference_mode():
        states, real = network(**batch).last_hidden_state, batch.attention_mask.unsqueeze(-1)
    expected = states[:, 0] if pooling == "cls_token" else (states * real).sum(1) / real.sum(1)
    expected = torch.nn.functional.normalize(expected).numpy()
    found = headwise.load(tmp_path, "cpu").embed(TEXTS)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)  # float32 in unit vectors, after three layers
    assert np.abs(found[0] - found[1]).max() > 0.01

"""The compiled library and torch give the same states, outputs and logits, in the order of the texts."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_families import write_tiny
from unit.native.encoders import CONFIGS, arrays_of, random_encoder

import headwise
from headwise.cli import main
from headwise.config.settings import INTEGERS
from headwise.errors import UserError
from headwise.models.encoding import library_encoder as encoder_network
from headwise.models.encoding.encoder_network import PER_TOKEN
from headwise.models.encoding.library_encoder import EncoderNetwork, LibraryEncoder, sigmoid, softmax
from headwise.pytorch.search.encoder import TorchEncoder
from headwise.runtime.checkpoint.compiled_encoder import compiled_encoder
from headwise.runtime.native.library import library
from headwise.text.prepared.encoded import EncodedText

needs_library = pytest.mark.skipif(library() is None, reason="the compiled library is missing")
TEXTS = [[5, 6, 7, 8], [9], [*range(49, 0, -1)], [3, 2, 4, 2, 5], [7, 7]]


def both(name: str, **changes: Any) -> tuple[EncoderNetwork, EncoderNetwork]:
    """A network in the library and in torch."""
    config = replace(CONFIGS[name], **changes)
    network = random_encoder(config)
    encoder = compiled_encoder(config, arrays_of(network), "float32")
    return LibraryEncoder(encoder, config.pooling, config.head in PER_TOKEN), TorchEncoder(network, 0)


def assert_close(found: np.ndarray, wanted: np.ndarray) -> None:
    """float32 against float32, for states of a few units."""
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@needs_library
@pytest.mark.parametrize("threads", [1, 3])
def test_states(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder_network, "usable_threads", lambda: threads)
    ours, theirs = (dict(one.states(TEXTS * 7, 2)) for one in both("BERT"))
    assert sorted(ours) == sorted(theirs) == list(range(7 * len(TEXTS)))
    for i, states in ours.items():
        assert len(states) == len(TEXTS[i % len(TEXTS)])
        assert_close(states, theirs[i])


@needs_library
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("BERT, pairs", {}),
        ("BERT, pairs", {"pooling": "mean"}),
        ("BERT, answers", {}),
        ("pre-norm", {}),
        ("DistilBERT", {}),
    ],
    ids=str,
)
def test_outputs(name: str, changes: dict[str, Any]) -> None:
    """For single texts and for pairs, whose second text has tokens of another type."""
    texts = [EncodedText(ids, (len(ids) + 1) // 2) for ids in TEXTS]
    ours, theirs = both(name, **changes)
    typed = "BERT," in name
    for one, other in zip(ours.outputs(texts, typed), theirs.outputs(texts, typed), strict=True):
        assert_close(one, other)
    assert not typed or np.abs(ours.outputs(texts, False)[0] - ours.outputs(texts, True)[0]).max() > 1e-3
    assert ours.outputs([], typed) == theirs.outputs([], typed) == []


@needs_library
@pytest.mark.parametrize("name", ["BERT", "RoBERTa", "ALBERT"])
def test_logits_of_masked_tokens(name: str) -> None:
    ours, theirs = both(name)
    found = ours.token_logits(TEXTS[2], [3, 40])
    assert found.shape == (2, 50)
    assert_close(found, theirs.token_logits(TEXTS[2], [3, 40]))


@needs_library
def test_after_its_torch_module_is_used_torch_reads_texts(tmp_path: Path) -> None:
    """It may have been changed; here it is, and the vectors show it."""
    write_tiny(tmp_path, "bert")
    model: Any = headwise.load(tmp_path, "cpu")
    assert isinstance(model.texts, LibraryEncoder)
    before = model.embed(["a dog"])
    network = model.network
    assert isinstance(model.texts, TorchEncoder)
    assert_close(model.embed(["a dog"]), before)
    network.embeddings.tokens.weight.data[:] = 1
    assert np.abs(model.embed(["a dog"]) - before).max() > 1e-3


@needs_library
def test_int8_in_python_and_on_the_command_line(tmp_path: Path) -> None:
    """The command writes the vectors of the model with `compute` = int8, which are not those in float32."""
    write_tiny(tmp_path / "model", "bert")
    (tmp_path / "in").write_text("a dog\ntwo men\n", encoding="utf-8")
    model: Any = headwise.load(tmp_path / "model", "cpu")
    exact = model.embed(["a dog", "two men"])
    model.compute = "int8"
    rounded = model.embed(["a dog", "two men"])
    assert (exact * rounded).sum(1).min() > 0.99 and not np.array_equal(exact, rounded)
    call = ["embed", str(tmp_path / "model"), str(tmp_path / "in"), "-o", str(tmp_path / "out.npy"), "--device", "cpu"]
    assert main([*call, "--compute", "int8"]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), rounded)
    _ = model.network
    with pytest.raises(UserError, match="the compiled library, which does not run this network"):
        model.embed(["a dog"])


@needs_library
@pytest.mark.parametrize("compute", INTEGERS)
def test_classify_in_integers(tmp_path: Path, capsys: pytest.CaptureFixture[str], compute: str) -> None:
    """The command writes the labels and probabilities of the model with this `compute`, which are its own."""
    classes = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "no", "1": "yes"}}
    write_tiny(tmp_path / "model", "bert", classes)
    (tmp_path / "in").write_text("a dog\ntwo men\n", encoding="utf-8")
    model: Any = headwise.load(tmp_path / "model", "cpu")
    model.compute = compute
    wanted = [found.as_record() for found in model.classify(["a dog", "two men"])]
    call = ["classify", str(tmp_path / "model"), str(tmp_path / "in"), "--device", "cpu", "--format", "jsonl"]
    assert main([*call, "--compute", compute]) == 0
    written = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert written == wanted
    assert main(call) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] != wanted


def test_int8_is_for_encoders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tiny(tmp_path / "model", "gpt2")
    (tmp_path / "in").write_text("a dog\n", encoding="utf-8")
    call = ["embed", str(tmp_path / "model"), str(tmp_path / "in"), "-o", str(tmp_path / "out.npy"), "--device", "cpu"]
    assert main([*call, "--compute", "int8"]) == 2
    assert "--compute int8 is for encoders; leave it out" in capsys.readouterr().err


def test_probabilities() -> None:
    x = np.array([[1000.0, 1000.0], [-1000.0, 0.0]], np.float32)
    assert softmax(x).tolist() == [[0.5, 0.5], [0.0, 1.0]]
    assert sigmoid(x).tolist() == [[1.0, 1.0], [0.0, 0.5]]

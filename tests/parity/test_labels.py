"""Labels are learnt as `transformers` learns them: the same loss, gradients and dropouts, and fifty updates of AdamW.

Tiny random networks that `transformers` saves; where curves are compared dropout is off, for each program draws its own
masks.
"""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from side_by_side import curves

from sightline.checkpoint.folder import read_folder
from sightline.checkpoint.tuned import SameLayout
from sightline.checkpoint.write import file_tensors
from sightline.config import apply_settings, load_recipe
from sightline.data.labelled import LabelledBatch, MarkedTexts, collate_marked
from sightline.network.dropout import Dropout
from sightline.network.halves import EncoderOnly
from sightline.tasks.classification import classification_objective
from sightline.tasks.labelling import START, headed, known_head, with_classes
from sightline.tasks.trainable import head_dropout, more_dropout, trainable

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what transformers imports
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

VOCAB, PAD = 30, 1
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
BERT = {"vocab_size": VOCAB, "max_position_embeddings": 40, "pad_token_id": PAD, "num_labels": 3} | SIZES
KINDS: dict[str, dict[str, Any]] = {
    "Bert": BERT,
    "Roberta": BERT | {"type_vocab_size": 1},
    "Electra": BERT | {"embedding_size": 8},
    "DistilBert": {"vocab_size": VOCAB, "max_position_embeddings": 40, "pad_token_id": PAD, "num_labels": 3, "dim": 16,
                   "n_layers": 2, "n_heads": 2, "hidden_dim": 24},
}  # fmt: skip
OFF = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
SEEN = {"initializer_range": 0.25}  # with the usual 0.02 what attention adds is too small for its dropout to be seen
QUIET = {kind: OFF for kind in KINDS} | {
    "DistilBert": {"dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0}
}
SETTINGS = ["train.max_steps=50", "train.learning_rate=0.01", "train.warmup_steps=5"]
TRAIN = apply_settings(load_recipe("tune-labels"), SETTINGS).train
SRC = torch.tensor([[5, 6, 7, 8, 9], [10, 11, 12, PAD, PAD], [13, 14, 15, 16, PAD]])
LABELS = torch.tensor([2, 0, 1])


def made(kind: str, head: str, folder: Path, **changes: Any) -> tuple[Any, Any]:
    """A model in transformers with biases that are not zero, and ours made of the folder that it saves."""
    model_class = getattr(transformers, f"{kind}For{head}")
    torch.manual_seed(3)
    drawn = model_class(model_class.config_class(**KINDS[kind] | changes))
    for parameter in drawn.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter) * (parameter.dim() == 1)
    drawn.save_pretrained(folder)
    theirs = model_class.from_pretrained(folder, attn_implementation="eager")
    return theirs.train(), read_folder(folder, dtype="float32")


def scaled(x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    """What stands for dropout: no mask, but a factor by which a wrong rate, or one too few, would be seen."""
    return x * (1 - p / 2) if training else x


def own_scaled(self: Dropout, x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
    x = scaled(x, self.p, self.training)
    return x if residual is None else residual + x


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("head", ["SequenceClassification", "TokenClassification"])
@pytest.mark.parametrize("named", [True, False])
def test_everything_is_dropped_that_transformers_drops(
    kind: str, head: str, named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rates that all differ; without `named` those of a config.json that says nothing of them."""
    rates = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.2, "classifier_dropout": 0.3}
    if kind == "DistilBert":
        rates = {"dropout": 0.1, "attention_dropout": 0.2, "seq_classif_dropout": 0.3}
    theirs, model = made(kind, head, tmp_path, **SEEN, **rates if named else {})
    monkeypatch.setattr(torch.nn.functional, "dropout", scaled)
    monkeypatch.setattr(Dropout, "forward", own_scaled)
    said = model.about if named else {key: value for key, value in model.about.items() if "dropout" not in key}
    more = head_dropout(more_dropout(said, 0.1), model.config, said, 0.1)
    own = trainable(model.network, 0.1, more).train()
    mask = SRC != PAD
    expected = theirs(input_ids=SRC, attention_mask=mask.long()).logits
    found = own(SRC, mask)
    real = mask if head.startswith("Token") else slice(None)
    torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=1e-5)


# --- Training


def batches(n: int, typed: bool) -> Iterator[LabelledBatch]:
    """Texts, every third with a second one behind it, whose class is that of their first token."""
    generator = np.random.default_rng(0)
    for _ in range(n):
        rows, labels = [], []
        for i in range(6):
            ids = generator.integers(3, VOCAB, generator.integers(4, 12)).tolist()
            rows.append(MarkedTexts(ids, 3 if i % 3 == 0 else len(ids)))
            labels.append(ids[0] % 3)
        yield collate_marked(rows, labels, PAD, typed)


def loss_of(theirs: Any, batch: LabelledBatch) -> torch.Tensor:
    typed = {} if batch.types is None else {"token_type_ids": batch.types}
    return theirs(input_ids=batch.src, attention_mask=batch.src_mask.long(), labels=batch.labels, **typed).loss


@pytest.fixture(params=KINDS)
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, EncoderOnly, Any, bool]:
    """The model in transformers, ours to be trained, what was read, and whether it knows types of tokens."""
    theirs, model = made(request.param, "SequenceClassification", tmp_path, **QUIET[request.param])
    return theirs, trainable(model.network, 0.0).train(), model, model.config.encoder.n_types > 1


def in_file(network: EncoderOnly, model: Any, gradients: bool = False) -> dict[str, torch.Tensor]:
    """Parameters, or their gradients, by the names that transformers has."""
    own = {name: p.grad if gradients else p.detach() for name, p in network.named_parameters()}
    own = {name: torch.zeros(()) if value is None else value for name, value in own.items()}
    return file_tensors(own, model.config)


@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_gradients(kind: str, tmp_path: Path) -> None:
    theirs, model = made(kind, "SequenceClassification", tmp_path, **SEEN, **QUIET[kind])
    own, typed = trainable(model.network, 0.0).train(), model.config.encoder.n_types > 1
    batch = next(batches(1, typed))
    loss = loss_of(theirs, batch)
    loss.backward()
    found = classification_objective(own, TRAIN)(batch)
    (found.objective / batch.n_targets).backward()
    torch.testing.assert_close(found.objective / batch.n_targets, loss, atol=1e-5, rtol=1e-5)
    expected = {name: value.grad for name, value in theirs.named_parameters()}
    gradients = in_file(own, model, gradients=True)
    assert gradients.keys() == expected.keys() and len(gradients) > 30
    for key, value in gradients.items():
        torch.testing.assert_close(
            value, expected[key], atol=1e-5, rtol=1e-4, msg=lambda text, key=key: f"{key}: {text}"
        )


def test_fifty_updates(both: tuple[Any, EncoderOnly, Any, bool]) -> None:
    """A loop as their users write it, and the steps of our trainer: the same curve, and the same network at its end."""
    theirs, own, model, typed = both
    objective = classification_objective(own, TRAIN)
    found = curves(theirs, own, TRAIN, objective, batches(50, typed), lambda batch: loss_of(theirs, batch))
    assert found[1] == pytest.approx(found[0], abs=1e-4)
    assert sum(found[0][-5:]) < sum(found[0][:5]) - 0.5
    expected = dict(theirs.named_parameters())
    for key, value in in_file(own, model).items():
        torch.testing.assert_close(value, expected[key], atol=2e-3, rtol=0)


@pytest.mark.parametrize("kind", [*KINDS, "XLMRoberta", "Camembert"])
@pytest.mark.parametrize("head", ["MaskedLM", "Model"])
def test_what_a_body_becomes_is_loaded_with_the_same_logits(kind: str, head: str, tmp_path: Path) -> None:
    """A new head on a body, which may have a pooler, saved: `AutoModelForSequenceClassification` computes the same."""
    values = KINDS["Roberta" if kind in ("XLMRoberta", "Camembert") else kind]
    torch.manual_seed(3)
    model_class = getattr(transformers, kind + ("Model" if head == "Model" else f"For{head}"))
    saved = model_class(model_class.config_class(**values))
    saved.save_pretrained(tmp_path / "in")
    base = START.read(str(tmp_path / "in"))
    model = with_classes(base, ["a", "b", "c", "d"])
    known = known_head(base, model)
    assert (len(known) == 2) == (kind == "Bert" and head == "Model")
    own = headed(base, model, known, 0.0).eval()
    layout = SameLayout(model)
    layout.write_companions(tmp_path / "out")
    layout.write_weights(tmp_path / "out", dict(own.named_parameters()), "")
    theirs, report = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert theirs.config.id2label == {0: "a", 1: "b", 2: "c", 3: "d"} and theirs.config.num_labels == 4
    mask = SRC != PAD
    expected = theirs.eval()(input_ids=SRC, attention_mask=mask.long()).logits
    torch.testing.assert_close(own(SRC, mask), expected, atol=1e-5, rtol=1e-5)
    if known:
        torch.testing.assert_close(theirs.bert.pooler.dense.weight, saved.pooler.dense.weight)
    again = read_folder(tmp_path / "out")
    torch.testing.assert_close(again.network(SRC, mask), expected, atol=1e-5, rtol=1e-5)

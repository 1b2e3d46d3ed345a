"""Labels of texts are learnt by an XLNet as `transformers` learns them with its XLNetForSequenceClassification.

Tiny random networks that `transformers` saves. There texts are padded on the left, here on the right; the last mark of
a text belongs to neither of two texts. Where gradients are compared dropout is off.
"""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from side_by_side import SAME_LOSS, SAME_WEIGHT, curves, positions_in_double

from headwise.config.settings import apply_settings, load_recipe
from headwise.core.dropout import Dropout
from headwise.errors import UserError
from headwise.models.encoding.classifier import Classifier
from headwise.models.load import pretrained_model
from headwise.pytorch.architectures.xlnet import XLNetClassifier
from headwise.pytorch.checkpoint.xlnet import XLNetLayout
from headwise.pytorch.checkpoint.xlnet_names import xlnet_file_tensors
from headwise.pytorch.data.labelled import LabelledBatch, collate_encoded
from headwise.pytorch.tasks.classification import FINE_TUNING, classification_objective
from headwise.pytorch.tasks.heads import network_with_head, pretrained_head, with_head
from headwise.runtime.checkpoint.read import read_folder
from headwise.text.prepared.encoded import EncodedText

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what transformers imports
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

LAYERS, HEADS, VOCAB, PAD = 2, 2, 30, 5
OFF = {"dropout": 0.0, "summary_last_dropout": 0.0}
SIZES = {"vocab_size": VOCAB, "d_model": 16, "n_layer": LAYERS, "n_head": HEADS, "d_inner": 24, "num_labels": 3}
CASES: dict[str, dict[str, Any]] = {
    "usual": {},
    "clamped": {"clamp_len": 3, "ff_activation": "gelu_new", "layer_norm_eps": 0.01},
}
TRAIN = apply_settings(
    load_recipe("tune-labels"), ["train.max_steps=50", "train.learning_rate=0.005", "train.warmup_steps=5"]
).train


def saved(folder: Path, kind: str = "ForSequenceClassification", **changes: Any) -> Any:
    """A network of `transformers`, with numbers of a size at which no gradient is lost, and its folder."""
    theirs = getattr(transformers, f"XLNet{kind}")(transformers.XLNetConfig(**(SIZES | OFF | changes)))
    torch.manual_seed(2)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    theirs.save_pretrained(folder)
    return theirs


def tuned(folder: Path, labels: str = "abc", dropout: float = 0.0) -> tuple[Classifier, XLNetClassifier]:
    """The XLNet in a folder as a run for these labels begins with it, and its network."""
    base = FINE_TUNING.read(str(folder))
    model = with_head(base, "text_class", [*labels])
    return model, network_with_head(base, model, pretrained_head(base, model), dropout)


def batches(n: int) -> Iterator[LabelledBatch]:
    """Texts, every third with a second one behind it, whose class is that of their first token; behind them two marks,
    of which one belongs to no text.
    """
    generator = np.random.default_rng(0)
    for _ in range(n):
        rows = []
        for i in range(6):
            ids = [*generator.integers(6, VOCAB, generator.integers(2, 10)).tolist(), 4, 3]
            rows.append(EncodedText(ids, 2 if i % 3 == 0 else len(ids), 1))
        yield collate_encoded(rows, [row.ids[0] % 3 for row in rows], PAD, typed=True)


def asked(theirs: Any, batch: LabelledBatch) -> Any:
    """What `transformers` makes of a batch, padded on the left as its tokenizer does it, <cls> in segment 2."""
    src, mask, types = (torch.zeros_like(batch.src) for _ in range(3))
    assert batch.types is not None
    for i, length in enumerate(batch.src_mask.sum(1).tolist()):
        src[i] = PAD
        src[i, -length:], mask[i, -length:] = batch.src[i, :length], 1
        types[i, -length:] = torch.cat([batch.types[i, : length - 1], torch.tensor([2])])
        types[i, :-length] = 3
    return theirs(input_ids=src, attention_mask=mask, token_type_ids=types, labels=batch.labels)


@pytest.mark.parametrize("name", CASES)
def test_loss_logits_and_gradients(name: str, tmp_path: Path) -> None:
    theirs = saved(tmp_path, **CASES[name]).train()
    _, own = tuned(tmp_path)
    batch = next(batches(1))
    assert not batch.src_mask.all() and {0, 1, 2} <= set(batch.types.unique().tolist())  # type: ignore[union-attr]
    expected = asked(theirs, batch)
    expected.loss.backward()
    torch.testing.assert_close(own(*batch.inputs), expected.logits, atol=1e-5, rtol=1e-5)
    found = classification_objective(own.train(), TRAIN)(batch).objective / batch.n_targets
    found.backward()
    torch.testing.assert_close(found, expected.loss, atol=1e-5, rtol=1e-5)
    gradients = {name: p.grad for name, p in own.named_parameters() if p.grad is not None}
    wanted = {name: p.grad for name, p in theirs.named_parameters() if p.grad is not None}
    found_too = xlnet_file_tensors(gradients, LAYERS, HEADS)
    assert len(found_too) > 30 and found_too.keys() == wanted.keys()
    for key, value in found_too.items():
        torch.testing.assert_close(value, wanted[key], atol=1e-5, rtol=1e-3, msg=lambda text, key=key: f"{key}: {text}")


def test_fifty_updates(tmp_path: Path) -> None:
    """A loop as their users write it, and the steps of our trainer: the same curve, and the same network at its end.

    What no label depends on, the vector that a query stream would start with, has no gradient in either.
    """
    theirs, (_, own) = saved(tmp_path).train(), tuned(tmp_path)
    positions_in_double(theirs)
    named = dict(theirs.named_parameters())
    flat = [p for p in named.values() if p.dim() == 1]
    decaying = [p for name, p in named.items() if p.dim() > 1 and not name.endswith("mask_emb")]
    groups = [{"params": decaying, "weight_decay": TRAIN.weight_decay}, {"params": flat, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=TRAIN.learning_rate, betas=TRAIN.betas, eps=TRAIN.eps)
    objective = classification_objective(own.train(), TRAIN)
    found = curves(theirs, own, TRAIN, objective, batches(50), lambda batch: asked(theirs, batch).loss, adamw)
    assert found[1] == pytest.approx(found[0], rel=0, abs=SAME_LOSS)
    assert sum(found[0][-5:]) < sum(found[0][:5]) - 0.5
    for key, value in xlnet_file_tensors(
        {name: p.detach() for name, p in own.named_parameters()}, LAYERS, HEADS
    ).items():
        torch.testing.assert_close(
            value, named[key], atol=SAME_WEIGHT, rtol=0, msg=lambda text, key=key: f"{key}: {text}"
        )


def scaled(x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    """What stands for dropout: no mask, but a factor by which a wrong rate, or one too few, would be seen."""
    return x * (1 - p / 2) if training else x


def test_what_transformers_drops_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The head has a rate of its own."""
    theirs = saved(tmp_path, dropout=0.2, summary_last_dropout=0.4).train()
    _, own = tuned(tmp_path, dropout=0.2)
    monkeypatch.setattr(torch.nn.functional, "dropout", scaled)
    monkeypatch.setattr(Dropout, "forward", lambda self, x: scaled(x, self.p, self.training))
    batch = next(batches(1))
    torch.testing.assert_close(own.train()(*batch.inputs), asked(theirs, batch).logits, atol=1e-5, rtol=1e-5)
    assert (own.eval()(*batch.inputs) - asked(theirs, batch).logits).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("before", "labels", "known"), [("LMHeadModel", "abcd", 0), ("ForSequenceClassification", "abcd", 2),
                                    ("ForSequenceClassification", "abc", 4)]
)  # fmt: skip
def test_what_a_body_becomes_is_loaded_with_the_same_logits(
    before: str, labels: str, known: int, tmp_path: Path
) -> None:
    """From its head for pieces, from one for other labels, and from one for as many; saved and read in both."""
    saved(tmp_path / "in", before)
    base = FINE_TUNING.read(str(tmp_path / "in"))
    model, own = tuned(tmp_path / "in", labels)
    assert len(pretrained_head(base, model)) == known
    layout = XLNetLayout(model)
    layout.write_companions(tmp_path / "out")
    layout.write_weights(tmp_path / "out", dict(own.named_parameters()), "")
    theirs, report = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert theirs.config.id2label == dict(enumerate(labels))
    batch = next(batches(1))
    expected = asked(theirs.eval(), batch).logits
    torch.testing.assert_close(own.eval()(*batch.inputs), expected, atol=1e-5, rtol=1e-5)
    again = pretrained_model(read_folder(tmp_path / "out"))
    assert isinstance(again, Classifier) and again.labels == (*labels,)
    torch.testing.assert_close(again.network(*batch.inputs), expected, atol=1e-5, rtol=1e-5)
    body = {name: p for name, p in base.network.named_parameters() if not name.startswith("head.")}
    assert all(torch.equal(p, dict(own.named_parameters())[name]) for name, p in body.items())


@pytest.mark.parametrize(
    ("kind", "changes", "expected"),
    [
        ("ForSequenceClassification", {"summary_type": "mean"}, "summary_type = 'mean' is not supported, only 'last'"),
        ("ForSequenceClassification", {"summary_use_proj": False}, "summary_use_proj = False is not supported"),
        ("ForSequenceClassification", {"summary_activation": "relu"}, "summary_activation = 'relu' is not supported"),
        ("ForTokenClassification", {}, "architectures = XLNetForTokenClassification is not supported, only XLNetLMHea"),
    ],
)
def test_other_heads_are_refused(kind: str, changes: dict[str, Any], expected: str, tmp_path: Path) -> None:
    saved(tmp_path, kind, **changes)
    with pytest.raises(UserError, match=expected):
        read_folder(tmp_path)


def test_a_summary_says_nothing_where_there_are_no_labels(tmp_path: Path) -> None:
    saved(tmp_path, "LMHeadModel", summary_type="mean", summary_activation="relu")
    assert pretrained_model(read_folder(tmp_path)).info()["n_classes"] == 0

"""Labels of texts, tags of words and ends of answers are learnt as `transformers` learns them: the same loss, gradients
and dropouts, and fifty updates of AdamW.

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
from side_by_side import PARTLY_FLOAT32, SAME_LOSS, SAME_WEIGHT, curves, stay_double
from tokenizers import pre_tokenizers

from headwise.config.settings import apply_settings, load_recipe
from headwise.core.dropout import Dropout
from headwise.core.transformer import EncoderOnly
from headwise.models.encoding.reading import text_reader
from headwise.models.encoding.tag import read_words
from headwise.pytorch.checkpoint.tuned import SameLayout
from headwise.pytorch.checkpoint.write import file_tensors
from headwise.pytorch.data.labelled import LabelledBatch, collate_encoded
from headwise.pytorch.data.tagged import IGNORED, collate_tagged
from headwise.pytorch.tasks.answering import span_objective
from headwise.pytorch.tasks.classification import FINE_TUNING, classification_objective
from headwise.pytorch.tasks.heads import network_with_head, pretrained_head, with_head
from headwise.pytorch.tasks.pretrained import extra_dropout_rates, make_trainable, with_head_dropout
from headwise.runtime.checkpoint.read import read_folder
from headwise.runtime.tokenizers.vocabulary import read_vocabulary
from headwise.text.prepared.encoded import EncodedText

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what transformers imports
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

VOCAB, PAD = 30, 1
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
BERT = {"vocab_size": VOCAB, "max_position_embeddings": 40, "pad_token_id": PAD, "num_labels": 3} | SIZES
DEBERTA = {"relative_attention": True, "position_buckets": 8, "share_att_key": True, "norm_rel_ebd": "layer_norm",
           "pos_att_type": "p2c|c2p", "position_biased_input": False, "type_vocab_size": 0}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "Bert": BERT,
    "Roberta": BERT | {"type_vocab_size": 1},
    "Electra": BERT | {"embedding_size": 8},
    "Albert": BERT | {"embedding_size": 8},
    "MPNet": BERT,
    "DebertaV2": BERT | DEBERTA | {"hidden_size": 24},  # the root of the scale is a whole number
    "ModernBert": BERT | {"local_attention": 4, "num_hidden_layers": 3, "classifier_pooling": "mean"},
    "DistilBert": {"vocab_size": VOCAB, "max_position_embeddings": 40, "pad_token_id": PAD, "num_labels": 3, "dim": 16,
                   "n_layers": 2, "n_heads": 2, "hidden_dim": 24},
}  # fmt: skip
OFF = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
DEFAULT_DROPOUT = {"Albert": 0.0, "ModernBert": 0.0}
SEEN = {"initializer_range": 0.25}  # with the usual 0.02 what attention adds is too small for its dropout to be seen
QUIET = {kind: OFF for kind in KINDS} | {
    "Albert": OFF | {"classifier_dropout_prob": 0.0},
    "DistilBert": {"dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0, "qa_dropout": 0.0},
}
HEADS = {"SequenceClassification": "text_class", "TokenClassification": "token_class", "QuestionAnswering": "span"}
SETTINGS = ["train.max_steps=50", "train.learning_rate=0.01", "train.warmup_steps=5"]
TRAIN = apply_settings(load_recipe("tune-labels"), SETTINGS).train
SRC = torch.tensor([[5, 6, 7, 8, 9], [10, 11, 12, PAD, PAD], [13, 14, 15, 16, PAD]])
LABELS = torch.tensor([2, 0, 1])


def made(kind: str, head: str, folder: Path, **changes: Any) -> tuple[Any, Any]:
    """A model in transformers with biases that are not zero, and ours made of the folder that it saves."""
    model_class = getattr(transformers, f"{kind}For{head}")
    torch.manual_seed(3)
    values = KINDS[kind] | changes | ({"num_labels": 2} if head == "QuestionAnswering" else {})
    drawn = model_class(model_class.config_class(**values))
    for parameter in drawn.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter) * (parameter.dim() == 1)
    drawn.save_pretrained(folder)
    # In float64 the eager attention of ModernBERT is NaN for padding that sees nothing.
    kernel = "sdpa" if kind == "ModernBert" else "eager"
    theirs = model_class.from_pretrained(folder, attn_implementation=kernel)
    return theirs.train(), read_folder(folder, dtype="float32")


def logits_of(theirs: Any, src: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Those of the ends of answers side by side."""
    found = theirs(input_ids=src, attention_mask=mask.long())
    return torch.stack([found.start_logits, found.end_logits], -1) if hasattr(found, "end_logits") else found.logits


def scaled(x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    """What stands for dropout: no mask, but a factor by which a wrong rate, or one too few, would be seen."""
    return x * (1 - p / 2) if training else x


def own_scaled(self: Dropout, x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
    x = scaled(x, self.p, self.training)
    return x if residual is None else residual + x


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("named", [True, False])
def test_everything_is_dropped_that_transformers_drops(
    kind: str, head: str, named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rates that all differ; without `named` those of a config.json that says nothing of them."""
    rates = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.2, "classifier_dropout": 0.3}
    if kind == "DistilBert":
        rates = {"dropout": 0.1, "attention_dropout": 0.2, "seq_classif_dropout": 0.3, "qa_dropout": 0.4}
    elif kind == "DebertaV2":
        rates["cls_dropout"] = 0.3
    elif kind == "ModernBert":
        rates = {"mlp_dropout": 0.2, "classifier_dropout": 0.3}
    elif kind == "Albert":
        rates["classifier_dropout_prob"] = 0.3
    theirs, model = made(kind, head, tmp_path, **SEEN, **rates if named else {})
    monkeypatch.setattr(torch.nn.functional, "dropout", scaled)
    monkeypatch.setattr(Dropout, "forward", own_scaled)
    said = model.about if named else {key: value for key, value in model.about.items() if "dropout" not in key}
    rate = 0.1 if named and kind != "ModernBert" else DEFAULT_DROPOUT.get(kind, 0.1)
    more = with_head_dropout(extra_dropout_rates(said, rate), model.config, said, rate)
    own = make_trainable(model.network, rate, more).train()
    mask = SRC != PAD
    expected = logits_of(theirs, SRC, mask)
    found = own(SRC, mask)
    real = slice(None) if head.startswith("Sequence") else mask
    torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=1e-5)


# --- Training


def batches(n: int, typed: bool, head: str) -> Iterator[LabelledBatch]:
    """Texts, every third with a second one behind it, whose class is that of their first token; or tokens that have
    classes of their own, but for the first and the last; or first and last token of an answer, and no padding, for in
    `transformers` an answer may begin there.
    """
    generator = np.random.default_rng(0)
    for _ in range(n):
        rows, labels = [], []
        for i in range(6):
            ids = generator.integers(3, VOCAB, 9 if head.startswith("Question") else generator.integers(4, 12)).tolist()
            rows.append(EncodedText(ids, 3 if i % 3 == 0 else len(ids)))
            labels.append([IGNORED, *(i % 3 for i in ids[1:-1]), IGNORED])
        if head == "TokenClassification":
            yield collate_tagged(rows, labels, PAD, typed)
        elif head == "QuestionAnswering":
            yield collate_encoded(rows, [sorted((row.ids[0] % 9, row.ids[1] % 9)) for row in rows], PAD, typed)
        else:
            yield collate_encoded(rows, [row.ids[0] % 3 for row in rows], PAD, typed)


def loss_of(theirs: Any, batch: LabelledBatch) -> torch.Tensor:
    typed = {} if batch.types is None else {"token_type_ids": batch.types}
    labels = {"labels": batch.labels}
    if batch.labels.shape == (len(batch.src), 2):
        labels = {"start_positions": batch.labels[:, 0], "end_positions": batch.labels[:, 1]}
    return theirs(input_ids=batch.src, attention_mask=batch.src_mask.long(), **labels, **typed).loss


def objective_of(own: EncoderOnly, head: str) -> Any:
    return span_objective(own, TRAIN) if head == "QuestionAnswering" else classification_objective(own, TRAIN)


def in_file(network: EncoderOnly, model: Any, gradients: bool = False) -> dict[str, torch.Tensor]:
    """Parameters, or their gradients, by the names that transformers has."""
    own = {name: p.grad if gradients else p.detach() for name, p in network.named_parameters()}
    own = {name: torch.zeros(()) if value is None else value for name, value in own.items()}
    return file_tensors(own, model.config)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("head", HEADS)
def test_loss_and_gradients(kind: str, head: str, tmp_path: Path) -> None:
    theirs, model = made(kind, head, tmp_path, **SEEN, **QUIET[kind])
    own, typed = make_trainable(model.network, 0.0).train(), model.config.encoder.n_types > 1
    batch = next(batches(1, typed, head))
    loss = loss_of(theirs, batch)
    loss.backward()
    found = objective_of(own, head)(batch)
    (found.objective / batch.n_targets).backward()
    torch.testing.assert_close(found.objective / batch.n_targets, loss, atol=1e-5, rtol=1e-5)
    expected = {name: value.grad for name, value in theirs.named_parameters()}
    gradients = in_file(own, model, gradients=True)
    assert gradients.keys() == expected.keys() and len(gradients) > 20
    for key, value in gradients.items():
        torch.testing.assert_close(
            value, expected[key], atol=1e-5, rtol=1e-4, msg=lambda text, key=key: f"{key}: {text}"
        )


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("head", HEADS)
def test_fifty_updates(kind: str, head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop as their users write it, and the steps of our trainer: the same curve, and the same network at its end."""
    stay_double(monkeypatch)
    theirs, model = made(kind, head, tmp_path, **QUIET[kind])
    own, typed = make_trainable(model.network, 0.0).train(), model.config.encoder.n_types > 1
    objective = objective_of(own, head)
    found = curves(theirs, own, TRAIN, objective, batches(50, typed, head), lambda batch: loss_of(theirs, batch))
    same_loss, same_weight = (PARTLY_FLOAT32,) * 2 if kind == "ModernBert" else (SAME_LOSS, SAME_WEIGHT)
    assert found[1] == pytest.approx(found[0], rel=0, abs=same_loss)
    assert sum(found[0][-5:]) < sum(found[0][:5]) - 0.5
    expected = dict(theirs.named_parameters())
    for key, value in in_file(own, model).items():
        torch.testing.assert_close(value, expected[key], atol=same_weight, rtol=0)


@pytest.mark.parametrize("kind", [*KINDS, "XLMRoberta", "Camembert"])
@pytest.mark.parametrize("before", ["MaskedLM", "Model"])
@pytest.mark.parametrize("head", HEADS)
def test_what_a_body_becomes_is_loaded_with_the_same_logits(kind: str, before: str, head: str, tmp_path: Path) -> None:
    """A new head on a body, which may have a pooler, saved: `AutoModelFor...` computes the same."""
    values = KINDS["Roberta" if kind in ("XLMRoberta", "Camembert") else kind]
    torch.manual_seed(3)
    model_class = getattr(transformers, kind + ("Model" if before == "Model" else f"For{before}"))
    saved = model_class(model_class.config_class(**values))
    saved.save_pretrained(tmp_path / "in")
    base = FINE_TUNING.read(str(tmp_path / "in"))
    model = with_head(base, HEADS[head], [] if HEADS[head] == "span" else ["a", "b", "c", "d"])
    known = pretrained_head(base, model)
    pooled = kind in ("Bert", "Albert") and before == "Model" and head == "SequenceClassification"
    shared = kind == "ModernBert" and before == "MaskedLM"  # a layer and its norm
    assert len(known) == (2 if pooled or shared else 0)
    own = network_with_head(base, model, known, 0.0).eval()
    layout = SameLayout(model)
    layout.write_companions(tmp_path / "out")
    layout.write_weights(tmp_path / "out", dict(own.named_parameters()), "")
    theirs, report = getattr(transformers, f"AutoModelFor{head}").from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    assert not report["missing_keys"] and not report["unexpected_keys"]
    if HEADS[head] != "span":
        assert theirs.config.id2label == {0: "a", 1: "b", 2: "c", 3: "d"} and theirs.config.num_labels == 4
    mask = SRC != PAD
    real = slice(None) if head.startswith("Sequence") else mask
    expected = logits_of(theirs.eval(), SRC, mask)[real]
    torch.testing.assert_close(own(SRC, mask)[real], expected, atol=1e-5, rtol=1e-5)
    if kind == "ModernBert" and not shared:
        assert bool((own.head.norm.weight == 1).all())  # a new norm changes nothing
    if shared:
        for name, parameter in saved.head.named_parameters():
            torch.testing.assert_close(theirs.head.get_parameter(name), parameter)
    if pooled:
        pooler = dict(theirs.base_model.pooler.named_parameters())
        for name, parameter in saved.pooler.named_parameters():
            torch.testing.assert_close(pooler[name], parameter)
    again = read_folder(tmp_path / "out")
    torch.testing.assert_close(again.network(SRC, mask)[real], expected, atol=1e-5, rtol=1e-5)


# --- Words


def word_pieces(folder: Path) -> Any:
    letters = "abcdefghijklmnopqrstuvwxyz"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    (folder / "vocab.txt").write_text("\n".join([*pieces, "the", ".", "-"]), encoding="utf-8")
    return transformers.BertTokenizerFast(str(folder / "vocab.txt"))


def merged_bytes(folder: Path) -> Any:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    ids = {piece: i for i, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>", "<mask>", *alphabet, "\u0120t", "he"])}
    return transformers.RobertaTokenizerFast(vocab=ids, merges=[("\u0120", "t"), ("h", "e")], add_prefix_space=True)


@pytest.mark.parametrize("made_by", [word_pieces, merged_bytes])
def test_words_are_read_as_their_recipe_reads_them(made_by: Any, tmp_path: Path) -> None:
    """`is_split_into_words=True`, and a label on the first piece of each word."""
    theirs = made_by(tmp_path)
    theirs.save_pretrained(tmp_path)
    sentences = [["The", "cat", "-", "like", "the", "U.N."], ["\u00e9t\u00e9", "a"]]
    vocabulary = read_vocabulary(tmp_path, {"model_type": "bert"})
    reader = text_reader(vocabulary, 0, 2, None, tmp_path, len(theirs))
    for part, words in zip(read_words(reader, sentences), sentences, strict=True):
        expected = theirs(words, is_split_into_words=True)
        assert list(part.read.ids) == expected["input_ids"]
        firsts = [i for i, word in enumerate(expected.word_ids()) if word not in (None, *expected.word_ids()[:i])]
        assert part.firsts == firsts

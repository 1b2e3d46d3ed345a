"""A masked language model is trained as `transformers` trains it: the same loss, gradients, fifty updates of AdamW.

Tiny random networks that `transformers` saves; dropout is off, for each program draws its own masks, but for the last
test, which puts a factor in its place.
"""

import warnings
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from side_by_side import PARTLY_FLOAT32, SAME_LOSS, SAME_WEIGHT, curves, stay_double

from headwise.config.settings import RunConfig, apply_settings, load_recipe
from headwise.core.dropout import Dropout
from headwise.core.transformer import EncoderOnly
from headwise.errors import UserError
from headwise.models.encoding.encoder import MaskedModel
from headwise.models.load import pretrained_model
from headwise.pytorch.checkpoint.tuned import SameLayout
from headwise.pytorch.checkpoint.write import file_tensors
from headwise.pytorch.data.masked_sequences import MaskedBatch, MaskedLineBatch, MaskedLines, MaskedText, split_lines
from headwise.pytorch.tasks.initial_model import model_settings
from headwise.pytorch.tasks.masked_modelling import masked_objective
from headwise.pytorch.tasks.pretrained import extra_dropout_rates, make_trainable
from headwise.runtime.checkpoint.read import read_folder
from headwise.text.prepared.masking import Masking

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what transformers imports
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

VOCAB, LENGTH, MASK = 23, 14, 3
STACK = {"vocab_size": VOCAB, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
         "intermediate_size": 24, "max_position_embeddings": 20}  # fmt: skip
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
DISTILBERT = {"vocab_size": VOCAB, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24,
              "max_position_embeddings": 20}  # fmt: skip
DEBERTA = {"relative_attention": True, "position_buckets": 8, "share_att_key": True, "norm_rel_ebd": "layer_norm",
           "pos_att_type": "p2c|c2p", "position_biased_input": False, "type_vocab_size": 0}  # fmt: skip
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertForMaskedLM", STACK | NO_DROPOUT),
    "bert, untied": ("BertForMaskedLM", STACK | NO_DROPOUT | {"tie_word_embeddings": False, "hidden_act": "relu"}),
    "roberta": ("RobertaForMaskedLM", STACK | NO_DROPOUT | {"pad_token_id": 0, "type_vocab_size": 1}),
    "albert": ("AlbertForMaskedLM", STACK | NO_DROPOUT | {"embedding_size": 8}),
    "mpnet": ("MPNetForMaskedLM", STACK | NO_DROPOUT),
    "modernbert": ("ModernBertForMaskedLM", STACK | {"num_hidden_layers": 3, "local_attention": 6, "pad_token_id": 0}),
    "deberta": ("DebertaV2ForMaskedLM", STACK | NO_DROPOUT | DEBERTA),
    "distilbert": ("DistilBertForMaskedLM", DISTILBERT | {"dropout": 0.0, "attention_dropout": 0.0}),
}
TRAIN = ["train.max_steps=50", "train.tokens_per_batch=96", "train.learning_rate=0.01", "train.warmup_steps=5",
         f"data.block_length={LENGTH}"]  # fmt: skip


def text() -> MaskedText:
    """Tokens that can be told a little from those beside them."""
    steps = np.random.default_rng(0).integers(1, 3, 2000)
    tokens = (4 + np.cumsum(steps) % (VOCAB - 4)).astype(np.int32)
    return MaskedText(tokens, LENGTH, [2], [2], Masking(MASK, np.arange(4, VOCAB, dtype=np.int64)))


def config() -> RunConfig:
    return apply_settings(load_recipe("bert"), TRAIN)


def batches() -> Iterator[MaskedBatch]:
    train = config().train
    with closing(text().stream(train.tokens_per_batch, train.seed)) as stream:
        yield from islice(stream, train.max_steps)


def labels(batch: MaskedBatch | MaskedLineBatch) -> torch.Tensor:
    """As transformers has them: -100 where nothing is to be told."""
    found = torch.full_like(batch.src, -100)
    found.view(-1)[batch.positions] = batch.targets
    return found


def loaded(folder: Path) -> MaskedModel:
    model = pretrained_model(read_folder(folder, dtype="float32"))
    assert isinstance(model, MaskedModel)
    return model


def for_training(model: MaskedModel, dropout: float) -> EncoderOnly:
    return make_trainable(model.network, dropout, extra_dropout_rates(model.hf_config, dropout)).train()


@pytest.fixture(params=CASES)
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, EncoderOnly, MaskedModel]:
    """The model in transformers, ours made of the folder that it saves, and what was read."""
    kind, values = CASES[request.param]
    model_class = getattr(transformers, kind)
    torch.manual_seed(3)
    theirs = model_class(model_class.config_class(**values))
    theirs.save_pretrained(tmp_path)
    model = loaded(tmp_path)
    return theirs.train(), for_training(model, 0.0), model


def in_file(network: EncoderOnly, model: MaskedModel, gradients: bool = False) -> dict[str, torch.Tensor]:
    """Parameters, or their gradients, by the names and in the shapes that transformers has."""
    own = {name: p.grad if gradients else p.detach() for name, p in network.named_parameters()}
    assert all(value is not None for value in own.values())
    return file_tensors(own, model.config)  # pyright: ignore


def test_loss_and_gradients_of_padded_lines(both: tuple[Any, EncoderOnly, MaskedModel]) -> None:
    theirs, own, model = both
    ends = np.cumsum(np.random.default_rng(1).integers(2, LENGTH - 2, 20))
    masking = Masking(MASK, np.arange(4, VOCAB, dtype=np.int64))
    lines = MaskedLines(text().tokens, *split_lines(ends, LENGTH - 2), [2], [2], masking, pad_id=0)
    batch = lines.load(np.arange(20), 0, 0)
    assert batch.n_real < batch.n_cells
    loss = theirs(input_ids=batch.src, attention_mask=batch.src_mask.long(), labels=labels(batch)).loss
    loss.backward()
    found = masked_objective(own, config().train)(batch)
    (found.objective / batch.n_targets).backward()
    torch.testing.assert_close(found.objective / batch.n_targets, loss, atol=1e-5, rtol=1e-5)
    gradients = in_file(own, model, gradients=True)
    for name, parameter in theirs.named_parameters():
        if name in gradients:
            torch.testing.assert_close(gradients[name], parameter.grad, atol=1e-5, rtol=1e-4)


def test_loss_and_gradients(both: tuple[Any, EncoderOnly, MaskedModel]) -> None:
    theirs, own, model = both
    batch = next(batches())
    loss = theirs(input_ids=batch.src, labels=labels(batch)).loss
    loss.backward()
    found = masked_objective(own, config().train)(batch)
    (found.objective / batch.n_targets).backward()
    torch.testing.assert_close(found.objective / batch.n_targets, loss, atol=1e-5, rtol=1e-5)
    expected = theirs.state_dict(keep_vars=True)
    gradients = in_file(own, model, gradients=True)
    assert len(gradients) > 20 and any(key.endswith("bias") and len(g) == VOCAB for key, g in gradients.items())
    for key, value in gradients.items():
        wanted = expected[key].grad
        torch.testing.assert_close(value, wanted, atol=1e-5, rtol=1e-4, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.few(2)
def test_fifty_updates(both: tuple[Any, EncoderOnly, MaskedModel], monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop as their users write it, and the steps of our trainer: the same curve, and the same network at its end."""
    stay_double(monkeypatch)
    theirs, own, model = both
    train = config().train
    objective = masked_objective(own, train)
    found = curves(
        theirs, own, train, objective, batches(), lambda batch: theirs(input_ids=batch.src, labels=labels(batch)).loss
    )
    modern = model.config.family == "modernbert"
    assert found[1] == pytest.approx(found[0], rel=0, abs=PARTLY_FLOAT32 if modern else SAME_LOSS)
    assert np.mean(found[0][-5:]) < found[0][0] - 0.1
    expected = theirs.state_dict()
    for key, value in in_file(own, model).items():
        torch.testing.assert_close(value, expected[key], atol=PARTLY_FLOAT32 if modern else SAME_WEIGHT, rtol=0)


def test_what_is_saved_has_the_same_logits(both: tuple[Any, EncoderOnly, MaskedModel], tmp_path: Path) -> None:
    _, own, model = both
    with torch.no_grad():
        for parameter in own.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    layout, out = SameLayout(model), tmp_path / "out"
    layout.write_companions(out)
    layout.write_weights(out, dict(own.named_parameters()), "")
    again = transformers.AutoModelForMaskedLM.from_pretrained(out).eval()
    src = next(batches()).src
    torch.testing.assert_close(own.eval()(src), again(src).logits, atol=1e-5, rtol=1e-5)


def scaled(x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    """What stands for dropout: no mask, but a factor by which a wrong rate, or one too few, would be seen."""
    return x * (1 - p / 2) if training else x


def test_dropout_of_some_outputs_alone_is_refused(tmp_path: Path) -> None:
    """ModernBERT has a rate for embeddings and one for attention, but none for the feed-forward network."""
    values = {**STACK, "pad_token_id": 0, "attention_dropout": 0.1}
    transformers.ModernBertForMaskedLM(transformers.ModernBertConfig(**values)).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"config.json.*attention_dropout = 0.1: only 0.*ModernBERT"):
        model_settings(str(tmp_path), "mlm")


@pytest.mark.parametrize(
    ("kind", "values", "rate"),
    [
        ("BertForMaskedLM", {**STACK, "hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}, 0.2),
        ("BertForMaskedLM", STACK, 0.1),
        ("RobertaForMaskedLM", {**STACK, "hidden_dropout_prob": 0.2, "pad_token_id": 0}, 0.2),
        ("AlbertForMaskedLM", {**STACK, "embedding_size": 8, "hidden_dropout_prob": 0.2}, 0.2),
        ("AlbertForMaskedLM", {**STACK, "embedding_size": 8}, 0.0),
        ("MPNetForMaskedLM", STACK, 0.1),
        ("ModernBertForMaskedLM", {**STACK, "mlp_dropout": 0.2, "pad_token_id": 0}, 0.0),
        ("DebertaV2ForMaskedLM", {**STACK, **DEBERTA}, 0.1),
        ("DistilBertForMaskedLM", {**DISTILBERT, "dropout": 0.2, "attention_dropout": 0.3}, 0.2),
    ],
)
def test_what_transformers_drops_is_dropped(
    kind: str, values: dict[str, Any], rate: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_class = getattr(transformers, kind)
    torch.manual_seed(3)
    model_class(model_class.config_class(**values)).save_pretrained(tmp_path)
    theirs = model_class.from_pretrained(tmp_path, attn_implementation="eager").train()
    monkeypatch.setattr(torch.nn.functional, "dropout", scaled)
    monkeypatch.setattr(
        Dropout,
        "forward",
        lambda self, x, residual=None: scaled(x, self.p, self.training) + (0 if residual is None else residual),
    )
    own = for_training(loaded(tmp_path), rate)
    batch = next(batches())
    loss = theirs(input_ids=batch.src, labels=labels(batch)).loss
    found = masked_objective(own, config().train)(batch).objective / batch.n_targets
    torch.testing.assert_close(found, loss, atol=1e-5, rtol=1e-5)

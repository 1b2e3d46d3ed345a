"""A language model is trained as `transformers` trains it: the same loss, gradients, and fifty updates of AdamW.

Tiny random networks that `transformers` saves; dropout is off, for each program draws its own masks.
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
from side_by_side import PARTLY_FLOAT32, SAME_LOSS, SAME_WEIGHT, curves

from headwise.config.settings import RunConfig, apply_settings, load_recipe
from headwise.config.training import TrainConfig
from headwise.core.dropout import Dropout
from headwise.core.transformer import DecoderOnly
from headwise.errors import UserError
from headwise.models.load import pretrained_model
from headwise.pytorch.checkpoint.tuned import SameLayout
from headwise.pytorch.checkpoint.write import file_tensors
from headwise.pytorch.data.blocks import BlockBatch, block_stream
from headwise.pytorch.tasks.initial_model import model_settings
from headwise.pytorch.tasks.language_modelling import language_objective
from headwise.pytorch.tasks.pretrained import extra_dropout_rates, make_trainable
from headwise.runtime.checkpoint.read import read_folder

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what transformers imports
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

VOCAB, LENGTH = 23, 12
IDS = {"vocab_size": VOCAB, "bos_token_id": 0, "eos_token_id": 0}
GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 20, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
        "attn_pdrop": 0.0}  # fmt: skip
LLAMA = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "intermediate_size": 24}  # fmt: skip
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", GPT2),
    "gpt2, untied": ("GPT2LMHeadModel", GPT2 | {"tie_word_embeddings": False, "activation_function": "relu"}),
    "llama": ("LlamaForCausalLM", LLAMA),
    "llama, tied": ("LlamaForCausalLM", LLAMA | {"tie_word_embeddings": True, "attention_bias": True}),
}
TRAIN = ["train.max_steps=50", "train.tokens_per_batch=48", "train.learning_rate=0.01", "train.warmup_steps=5",
         "data.block_length=12"]  # fmt: skip


def text() -> np.ndarray:
    """Tokens that can be predicted a little."""
    steps = np.random.default_rng(0).integers(1, 4, 900)
    return (np.cumsum(steps) % VOCAB).astype(np.int32)


@pytest.fixture(params=CASES)
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, DecoderOnly, Any]:
    """The model in transformers, ours made of the folder that it saves, and what was read."""
    kind, values = CASES[request.param]
    model_class = getattr(transformers, kind)
    torch.manual_seed(3)
    theirs = model_class(model_class.config_class(**IDS | values))
    theirs.save_pretrained(tmp_path)
    model = read_folder(tmp_path, dtype="float32")
    own = make_trainable(model.network, 0.0, extra_dropout_rates(model.about, 0.0))
    return theirs.train(), own.train(), model


def config() -> RunConfig:
    return apply_settings(load_recipe("gpt"), TRAIN)


def batches(train: TrainConfig) -> Iterator[BlockBatch]:
    with closing(block_stream(text(), LENGTH, train.tokens_per_batch, train.seed)) as stream:
        yield from islice(stream, train.max_steps)


def in_file(network: DecoderOnly, model: Any, gradients: bool = False) -> dict[str, torch.Tensor]:
    """Parameters, or their gradients, by the names and in the shapes that transformers has."""
    own = {name: p.grad if gradients else p.detach() for name, p in network.named_parameters()}
    assert all(value is not None for value in own.values())
    return file_tensors(own, model.config)  # pyright: ignore


def test_loss_and_gradients(both: tuple[Any, DecoderOnly, Any]) -> None:
    theirs, own, model = both
    batch = next(batches(config().train))
    loss = theirs(input_ids=batch.tokens, labels=batch.tokens).loss  # which it shifts by itself
    loss.backward()
    found = language_objective(own, config().train)(batch)
    (found.objective / batch.n_targets).backward()
    torch.testing.assert_close(found.objective / batch.n_targets, loss, atol=1e-5, rtol=1e-5)
    expected = {name: value.grad for name, value in theirs.named_parameters()}
    gradients = in_file(own, model, gradients=True)
    assert gradients.keys() == expected.keys() and len(gradients) > 15
    for key, value in gradients.items():
        torch.testing.assert_close(
            value, expected[key], atol=1e-5, rtol=1e-4, msg=lambda text, key=key: f"{key}: {text}"
        )


@pytest.mark.few(1)
def test_fifty_updates(both: tuple[Any, DecoderOnly, Any]) -> None:
    """A loop as their users write it, and the steps of our trainer: the same curve, and the same network at its end."""
    theirs, own, model = both
    partly_float32 = theirs.config.model_type == "llama"
    train = config().train
    objective = language_objective(own, train)

    def loss_of(batch: Any) -> torch.Tensor:
        """What transformers computes from labels, but not in float32: `test_loss_and_gradients` has that."""
        return torch.nn.functional.cross_entropy(theirs(input_ids=batch.tokens).logits[:, :-1].mT, batch.tokens[:, 1:])

    found = curves(theirs, own, train, objective, batches(train), loss_of)
    assert found[1] == pytest.approx(found[0], rel=0, abs=PARTLY_FLOAT32 if partly_float32 else SAME_LOSS)
    assert found[0][-1] < found[0][0] - 1
    expected = dict(theirs.named_parameters())
    for key, value in in_file(own, model).items():
        bound = PARTLY_FLOAT32 if partly_float32 else SAME_WEIGHT
        torch.testing.assert_close(value, expected[key], atol=bound, rtol=0)


def test_what_is_saved_has_the_same_logits(both: tuple[Any, DecoderOnly, Any], tmp_path: Path) -> None:
    _, own, model = both
    with torch.no_grad():
        for parameter in own.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    layout = SameLayout(pretrained_model(model))
    out = tmp_path / "out"
    layout.write_companions(out)
    layout.write_weights(out, dict(own.named_parameters()), "")
    again = transformers.AutoModelForCausalLM.from_pretrained(out).eval()
    tokens = torch.from_numpy(text()[None, :LENGTH].astype(np.int64))
    torch.testing.assert_close(own.eval()(tokens), again(tokens).logits, atol=1e-5, rtol=1e-5)


def scaled(x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    """What stands for dropout: no mask, but a factor by which a wrong rate, or one too few, would be seen."""
    return x * (1 - p / 2) if training else x


def test_gpt2_drops_what_transformers_drops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = IDS | GPT2 | {"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.3}
    torch.manual_seed(3)
    transformers.GPT2LMHeadModel(transformers.GPT2Config(**values)).save_pretrained(tmp_path)
    theirs = transformers.GPT2LMHeadModel.from_pretrained(tmp_path, attn_implementation="eager").train()
    monkeypatch.setattr(torch.nn.functional, "dropout", scaled)
    monkeypatch.setattr(
        Dropout,
        "forward",
        lambda self, x, residual=None: scaled(x, self.p, self.training) + (0 if residual is None else residual),
    )
    model = read_folder(tmp_path, dtype="float32")
    own = make_trainable(model.network, 0.1, extra_dropout_rates(model.about, 0.1)).train()
    batch = next(batches(config().train))
    loss = theirs(input_ids=batch.tokens, labels=batch.tokens).loss
    found = language_objective(own, config().train)(batch).objective / batch.n_targets
    torch.testing.assert_close(found, loss, atol=1e-5, rtol=1e-5)


def test_two_rates_for_what_has_one_are_refused(tmp_path: Path) -> None:
    """Dropout of embeddings at another rate than that of sub-layers would be trained with the wrong one in silence."""
    values = IDS | GPT2 | {"resid_pdrop": 0.1, "embd_pdrop": 0.2}
    transformers.GPT2LMHeadModel(transformers.GPT2Config(**values)).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"config.json has embd_pdrop = 0.2 and resid_pdrop = 0.1"):
        model_settings(str(tmp_path), "lm")

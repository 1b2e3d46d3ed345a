"""T5 and BART trained further by their own objectives, beside `transformers`: loss, gradients, fifty updates of AdamW.

Tiny random networks that `transformers` saves, those of `test_tuning`; dropout is off, for each program draws its own
masks.
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
from parity.test_tuning import CASES, IDS
from side_by_side import PARTLY_FLOAT32, SAME_LOSS, curves

from headwise.config.settings import RunConfig, apply_settings, load_recipe
from headwise.core.batches import Batch
from headwise.models.load import pretrained_model
from headwise.models.translation.translator import Translator
from headwise.pytorch.checkpoint.tuned import SameLayout
from headwise.pytorch.checkpoint.write import file_tensors
from headwise.pytorch.data.corruption import (
    BlockSpecials,
    CorruptedBlocks,
    SpanCorruption,
    block_length_for,
    denoising_for,
)
from headwise.pytorch.tasks.pretrained import make_trainable
from headwise.pytorch.training.step import translation_objective
from headwise.runtime.checkpoint.read import read_folder

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what transformers imports
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

VOCAB, PAD, END, MASK, LENGTH = IDS["vocab_size"], 1, 2, 3, 16
SENTINELS = np.arange(VOCAB - 1, VOCAB - 5, -1)


def config() -> RunConfig:
    rate = ["train.max_steps=50", "train.tokens_per_batch=96", "train.learning_rate=0.01", "train.warmup_steps=5"]
    return apply_settings(load_recipe("tune-denoise"), rate)


def text(kind: str) -> CorruptedBlocks:
    """Tokens that can be told a little from those beside them."""
    steps = np.random.default_rng(0).integers(1, 3, 2000)
    tokens = (4 + np.cumsum(steps) % (VOCAB - 8)).astype(np.int32)
    if kind.startswith("t5"):
        marks = BlockSpecials([], [END], [], start_id=PAD, end_id=END, pad_id=PAD)
        return CorruptedBlocks(tokens, block_length_for(LENGTH), SpanCorruption(SENTINELS), marks)
    noise = denoising_for([f"▁{i}{'.' * (i == 9)}" for i in range(VOCAB)], MASK, END)
    marks = BlockSpecials([0], [END], [0], start_id=END, end_id=END, pad_id=PAD)
    return CorruptedBlocks(tokens, LENGTH - 2, noise, marks)


def batches(kind: str) -> Iterator[Batch]:
    train = config().train
    with closing(text(kind).stream(train.tokens_per_batch, train.seed)) as stream:
        yield from islice(stream, train.max_steps)


@pytest.fixture(params=["t5", "t5 v1.1", "bart", "mbart"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Any, Any, Translator]:
    """Which it is; the model in transformers; ours made of the folder that it saves, and what was read."""
    kind, values = CASES[request.param]
    model_class = getattr(transformers, kind)
    torch.manual_seed(3)
    theirs = model_class(model_class.config_class(**IDS | values | {"init_std": 0.1}))
    theirs.save_pretrained(tmp_path)
    model = pretrained_model(read_folder(tmp_path, dtype="float32"))
    assert isinstance(model, Translator)
    return request.param, theirs.train(), make_trainable(model.network, 0.0).train(), model


def their_loss(theirs: Any, batch: Batch) -> torch.Tensor:
    """By their labels alone, from which they make what the decoder reads."""
    labels = batch.tgt_out.masked_fill(batch.tgt_out == PAD, -100)
    if theirs.config.model_type == "mbart":  # would begin with the last label, which is a language's code there
        given = {"decoder_input_ids": batch.tgt_in}
        return theirs(input_ids=batch.src, attention_mask=batch.src_mask.long(), labels=labels, **given).loss
    return theirs(input_ids=batch.src, attention_mask=batch.src_mask.long(), labels=labels).loss


def test_loss_and_gradients(both: tuple[str, Any, Any, Translator]) -> None:
    kind, theirs, own, model = both
    batch = next(batches(kind))
    loss = their_loss(theirs, batch)
    loss.backward()
    found = translation_objective(own, PAD, config().train)(batch).objective / batch.n_targets
    found.backward()
    torch.testing.assert_close(found, loss, atol=1e-5, rtol=1e-5)
    expected = {name: value.grad for name, value in theirs.named_parameters() if value.grad is not None}
    gradients = {
        name: torch.zeros_like(value) if value.grad is None else value.grad for name, value in own.named_parameters()
    }
    gradients = {key: value for key, value in file_tensors(gradients, model.config).items() if key in expected}
    assert len(gradients) > 20
    for key, value in gradients.items():
        wanted = expected[key]
        torch.testing.assert_close(value, wanted, atol=1e-5, rtol=1e-4, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.few(1)
def test_fifty_updates(both: tuple[str, Any, Any, Translator], tmp_path: Path) -> None:
    """The same curve; and what is saved has the same logits in transformers."""
    kind, theirs, own, model = both
    train = config().train
    objective = translation_objective(own, PAD, train)
    found = curves(theirs, own, train, objective, batches(kind), lambda batch: their_loss(theirs, batch))
    assert found[1] == pytest.approx(found[0], rel=0, abs=PARTLY_FLOAT32 if kind.startswith("t5") else SAME_LOSS)
    assert np.mean(found[0][-5:]) < found[0][0] - 0.1
    layout, out = SameLayout(model), tmp_path / "out"
    layout.write_companions(out)
    layout.write_weights(out, dict(own.named_parameters()), "")
    again, batch = transformers.AutoModelForSeq2SeqLM.from_pretrained(out).eval(), next(batches(kind))
    own.float()
    torch.testing.assert_close(
        own.eval()(batch.src, batch.tgt_in, batch.src_mask),
        again(input_ids=batch.src, attention_mask=batch.src_mask.long(), decoder_input_ids=batch.tgt_in).logits,
        atol=1e-5,
        rtol=1e-5,
    )

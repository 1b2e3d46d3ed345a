"""Replaced-token detection beside `transformers`: its ElectraForMaskedLM and ElectraForPreTraining, tables shared.

Weights are handed over by the table of names. What is drawn is the likeliest piece in both, and dropout is off.
"""

import warnings
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from side_by_side import SAME_LOSS, curves
from torch import nn

from headwise.config.model import TransformerConfig
from headwise.config.settings import apply_settings, load_recipe
from headwise.config.training import TrainConfig
from headwise.pytorch.architectures.electra import Electra
from headwise.pytorch.architectures.hf_layouts import electra_configs
from headwise.pytorch.checkpoint.from_scratch import ScratchLayout, check_layout
from headwise.pytorch.checkpoint.write import config_to_hf, file_tensors
from headwise.pytorch.data.masked_sequences import MaskedBatch, MaskedText
from headwise.pytorch.tasks.replaced_modelling import (
    ALL_MASKED,
    DISCRIMINATOR,
    build_electra,
    discriminator_tensors,
    replaced_objective,
)
from headwise.text.prepared.masking import Masking

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what transformers imports
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

SHAPE = TransformerConfig(task="rtd", vocab_size=20, d_model=32, d_ff=48, n_heads=4, n_encoder_layers=2, dropout=0.0,
                    positions="learned", activation="gelu")  # fmt: skip
BATCH = MaskedBatch(
    torch.tensor([[1, 4, 7, 8, 2, 9], [1, 9, 4, 4, 2, 11]]), torch.tensor([1, 8, 9]), torch.tensor([6, 9, 5])
)


def likeliest(logits: torch.Tensor) -> torch.Tensor:
    return logits.argmax(-1)


def text() -> MaskedText:
    """Few tokens that can be told from those beside them."""
    tokens = (5 + np.cumsum(np.random.default_rng(0).integers(1, 3, 2000)) % 7).astype(np.int32)
    return MaskedText(tokens, 14, [1], [2], Masking(4, np.arange(5, 20, dtype=np.int64), shares=ALL_MASKED))


def handed_over(own: Electra, axes: Any) -> nn.ModuleList:
    """Discriminator and generator of `transformers` with our weights; they read the same tables.

    The row of padding learns in ours, where a generator may draw it; there it would not.
    """
    kinds = transformers.ElectraForPreTraining, transformers.ElectraForMaskedLM
    theirs: list[Any] = []
    for kind, config, part in zip(kinds, axes, (own.discriminator, own.generator), strict=True):
        model = kind(transformers.ElectraConfig(**config_to_hf(config)[0], attn_implementation="eager"))
        tensors = file_tensors({name: p.detach() for name, p in part.named_parameters()}, config)
        missing, unexpected = model.load_state_dict(tensors, strict=False)
        assert not unexpected and set(missing) <= {"generator_lm_head.weight", "electra.embeddings.position_ids"}
        theirs.append(model)
    discriminator, generator = theirs
    generator.tie_weights()
    shared = generator.electra.embeddings
    for name in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
        setattr(shared, name, getattr(discriminator.electra.embeddings, name))
    shared.word_embeddings.padding_idx = None
    generator.generator_lm_head.weight = shared.word_embeddings.weight
    return nn.ModuleList(theirs)


def loss_of(theirs: nn.ModuleList, batch: MaskedBatch) -> torch.Tensor:
    """The loss of section 2 of the paper from the networks of transformers.

    The discriminator's loss is computed here: transformers' own is in float32 whatever the network's precision.
    """
    discriminator, generator = theirs
    labels = torch.full_like(batch.src, -100)
    labels.view(-1)[batch.positions] = batch.targets
    told = generator(input_ids=batch.src, labels=labels)
    src = batch.src.clone()
    src.view(-1)[batch.positions] = told.logits.flatten(0, 1)[batch.positions].argmax(-1)
    other = labels.ne(-100) & src.ne(labels)
    scores = discriminator(input_ids=src).logits
    return told.loss + 50 * torch.nn.functional.binary_cross_entropy_with_logits(scores, other.to(scores.dtype))


@pytest.fixture
def both() -> tuple[nn.ModuleList, Electra, Any]:
    """Those of transformers, ours, and the axes of both halves."""
    axes = electra_configs(SHAPE, 14)
    torch.manual_seed(2)
    own = build_electra(*axes)
    for parameter in own.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return handed_over(own, axes), own, axes


def test_losses_and_gradients(both: tuple[nn.ModuleList, Electra, Any]) -> None:
    theirs, own, axes = both
    found = replaced_objective(own, TrainConfig(label_smoothing=0.0), likeliest)(BATCH).objective / BATCH.n_targets
    found.backward()
    loss = loss_of(theirs, BATCH)
    loss.backward()
    torch.testing.assert_close(found, loss, atol=1e-4, rtol=1e-5)
    for part, config, model in zip((own.discriminator, own.generator), axes, theirs, strict=True):
        gradients = file_tensors({name: p.grad for name, p in part.named_parameters() if p.grad is not None}, config)
        expected = {name: p.grad for name, p in model.named_parameters(remove_duplicate=False)}
        assert len(gradients) > 30
        for key, value in gradients.items():
            torch.testing.assert_close(
                value, expected[key], atol=1e-4, rtol=1e-3, msg=lambda text, key=key: f"{key}: {text}"
            )


@pytest.mark.thorough
def test_fifty_updates(both: tuple[nn.ModuleList, Electra, Any]) -> None:
    """A loop as their users write it, and the steps of our trainer: the same curve."""
    theirs, own, _ = both
    settings = ["train.max_steps=50", "train.tokens_per_batch=96", "train.learning_rate=0.005", "train.warmup_steps=5"]
    train = apply_settings(load_recipe("electra"), settings).train
    objective = replaced_objective(own, train, likeliest)
    with closing(text().stream(train.tokens_per_batch, train.seed)) as stream:
        batches = islice(stream, train.max_steps)
        found = curves(theirs, own, train, objective, batches, lambda batch: loss_of(theirs, batch))
    assert found[1] == pytest.approx(found[0], rel=0, abs=SAME_LOSS)
    assert np.mean(found[0][-5:]) < found[0][0] - 10


def test_the_discriminator_has_the_same_scores_there(tmp_path: Path) -> None:
    axes = electra_configs(SHAPE, 8)
    own = build_electra(*axes)
    layout = ScratchLayout({}, partial(discriminator_tensors, axes=axes[0]))
    check_layout(axes[0])
    with pytest.raises(Exception, match="replaced-token model is saved in the layout of electra"):
        check_layout(replace(axes[0], encoder=replace(axes[0].encoder, gated=True)))
    layout.write_weights(tmp_path, dict(own.named_parameters()), "")
    transformers.ElectraConfig(**config_to_hf(axes[0])[0]).save_pretrained(tmp_path)
    theirs = transformers.AutoModelForPreTraining.from_pretrained(tmp_path).eval()
    assert type(theirs).__name__ == "ElectraForPreTraining" and DISCRIMINATOR == "discriminator."
    with torch.no_grad():
        torch.testing.assert_close(own.eval().discriminator(BATCH.src), theirs(BATCH.src).logits, atol=1e-5, rtol=1e-5)

"""Permutation language modelling beside `transformers`' XLNetLMHeadModel: loss and gradients of a folder of ours."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from sightline.config import ModelConfig, TrainConfig
from sightline.data.permutation import PermutedText
from sightline.relatives.xlnet import build_xlnet, partial_order_mask
from sightline.relatives.xlnet_checkpoint import file_tensors, shape_to_hf
from sightline.tasks.permutation_modelling import BegunXLNet, permutation_objective, shape_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what transformers imports
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

SHAPE = shape_of(
    ModelConfig(task="plm", vocab_size=30, d_model=16, d_ff=24, n_heads=2, n_encoder_layers=2, dropout=0.0,
                positions="relative", activation="gelu")
)  # fmt: skip


def test_loss_and_gradients(tmp_path: Path) -> None:
    torch.manual_seed(2)
    own = build_xlnet(SHAPE)
    for parameter in own.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    layout = BegunXLNet(SHAPE, 32)
    layout.write_weights(tmp_path, dict(own.named_parameters()), "")
    transformers.XLNetConfig(**shape_to_hf(SHAPE)).save_pretrained(tmp_path)
    theirs = transformers.XLNetLMHeadModel.from_pretrained(tmp_path).train()
    batch = next(PermutedText(np.arange(600, dtype=np.int32) % 25 + 5, 32, [2, 1]).fixed(96))
    mapping = torch.nn.functional.one_hot(batch.places, batch.src.size(1)).float()
    hidden = (~partial_order_mask(batch.rank)).float()
    given = {"perm_mask": hidden, "target_mapping": mapping, "token_type_ids": torch.zeros_like(batch.src)}
    loss = theirs(input_ids=batch.src, labels=batch.targets, use_mems=False, **given).loss
    loss.backward()
    found = permutation_objective(own.train(), TrainConfig(label_smoothing=0.0))(batch).objective / batch.n_targets
    found.backward()
    torch.testing.assert_close(found, loss, atol=1e-5, rtol=1e-5)
    gradients = {name: p.grad for name, p in own.named_parameters() if p.grad is not None}
    expected = {name: p.grad for name, p in theirs.named_parameters() if p.grad is not None}
    found_too = file_tensors(gradients, SHAPE.n_layers, SHAPE.n_heads)
    assert len(found_too) > 30 and found_too.keys() <= expected.keys() | {"lm_loss.weight"}
    for key, value in found_too.items():
        torch.testing.assert_close(
            value, expected[key], atol=1e-5, rtol=1e-3, msg=lambda text, key=key: f"{key}: {text}"
        )

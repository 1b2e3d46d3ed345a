"""A permutation language model is trained as `transformers` trains its XLNetLMHeadModel, begun here or from a folder.

The same loss, gradients, fifty updates of AdamW; dropout is off, for each program draws its own masks, but for the last
test, which puts a factor in its place.
"""

import warnings
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from side_by_side import SAME_LOSS, SAME_WEIGHT, curves, positions_in_double

from headwise.config.model import TransformerConfig
from headwise.config.settings import RunConfig, apply_settings, load_recipe
from headwise.core.dropout import Dropout
from headwise.models.language.language_model import XLNetModel
from headwise.models.load import pretrained_model
from headwise.pytorch.architectures.xlnet import XLNet, build_xlnet, partial_order_mask
from headwise.pytorch.checkpoint.from_scratch import ScratchLayout
from headwise.pytorch.checkpoint.xlnet import XLNetLayout
from headwise.pytorch.checkpoint.xlnet_names import shape_to_hf, xlnet_file_tensors
from headwise.pytorch.data.permutation import PermutedBatch, PermutedText
from headwise.pytorch.tasks.permutation_modelling import permutation_objective, xlnet_shape
from headwise.pytorch.tasks.pretrained import unfreeze
from headwise.runtime.checkpoint.layout import CONFIG
from headwise.runtime.checkpoint.read import read_folder

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what transformers imports
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

LENGTH, LAYERS, HEADS = 32, 2, 2
SHAPE = xlnet_shape(
    TransformerConfig(task="plm", vocab_size=30, d_model=16, d_ff=24, n_heads=HEADS, n_encoder_layers=LAYERS,
                      dropout=0.0, positions="relative", activation="gelu")
)  # fmt: skip
SIZES = {"vocab_size": 30, "d_model": 16, "n_layer": LAYERS, "n_head": HEADS, "d_inner": 24, "dropout": 0.0}
CASES: dict[str, dict[str, Any] | None] = {
    "begun here": None,
    "tied": {},
    "untied": {"tie_word_embeddings": False},
    "clamped": {"clamp_len": 5, "ff_activation": "gelu_new", "layer_norm_eps": 0.01},
}
TRAIN = ["train.max_steps=50", "train.tokens_per_batch=96", "train.learning_rate=0.01", "train.warmup_steps=5",
         f"data.block_length={LENGTH}"]  # fmt: skip


def config() -> RunConfig:
    return apply_settings(load_recipe("xlnet"), TRAIN)


def batches() -> Iterator[PermutedBatch]:
    """Of few tokens that can be told from those beside them."""
    tokens = (5 + np.cumsum(np.random.default_rng(0).integers(1, 3, 2000)) % 7).astype(np.int32)
    train = config().train
    with closing(PermutedText(tokens, LENGTH, [2, 1]).stream(train.tokens_per_batch, train.seed)) as stream:
        yield from islice(stream, train.max_steps)


def loss_of(theirs: Any, batch: PermutedBatch) -> torch.Tensor:
    mapping = torch.nn.functional.one_hot(batch.positions, batch.src.size(1)).to(theirs.dtype)
    hidden = (~partial_order_mask(batch.rank)).to(theirs.dtype)
    given = {"perm_mask": hidden, "target_mapping": mapping, "token_type_ids": torch.zeros_like(batch.src)}
    return theirs(input_ids=batch.src, labels=batch.targets, use_mems=False, **given).loss


def drawn(network: Any) -> None:
    """Numbers of a size at which no gradient is lost."""
    torch.manual_seed(2)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)


def saved(folder: Path, **changes: Any) -> Any:
    """A network of `transformers`, and its folder."""
    theirs = transformers.XLNetLMHeadModel(transformers.XLNetConfig(**(SIZES | changes)))
    drawn(theirs)
    theirs.save_pretrained(folder)
    return theirs


def read(folder: Path, dropout: float = 0.0) -> XLNetModel:
    """The XLNet in a folder as a run begins with it."""
    model = pretrained_model(read_folder(folder, dtype="float32"))
    assert isinstance(model, XLNetModel)
    unfreeze(model.network, dropout)
    model.network.train()
    return model


@pytest.fixture(params=CASES)
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, XLNet]:
    """The model in transformers, and ours: it was read from the folder of the other."""
    if (changes := CASES[request.param]) is not None:
        theirs = saved(tmp_path, **changes)
        return theirs.train(), read(tmp_path).network
    own = build_xlnet(SHAPE)
    drawn(own)
    layout = ScratchLayout({CONFIG: shape_to_hf(SHAPE)}, partial(xlnet_file_tensors, n_layers=LAYERS, n_heads=HEADS))
    layout.write_settings(tmp_path, config(), None, {})
    layout.write_weights(tmp_path, dict(own.named_parameters()), "")
    return transformers.XLNetLMHeadModel.from_pretrained(tmp_path).train(), own.train()


def test_loss_and_gradients(both: tuple[Any, XLNet]) -> None:
    theirs, own = both
    batch = next(batches())
    loss = loss_of(theirs, batch)
    loss.backward()
    found = permutation_objective(own, config().train)(batch).objective / batch.n_targets
    found.backward()
    torch.testing.assert_close(found, loss, atol=1e-5, rtol=1e-5)
    gradients = {name: p.grad for name, p in own.named_parameters() if p.grad is not None}
    expected = {name: p.grad for name, p in theirs.named_parameters() if p.grad is not None}
    found_too = xlnet_file_tensors(gradients, LAYERS, HEADS)
    assert len(found_too) > 30 and found_too.keys() == expected.keys()
    for key, value in found_too.items():
        torch.testing.assert_close(
            value, expected[key], atol=1e-5, rtol=1e-3, msg=lambda text, key=key: f"{key}: {text}"
        )


@pytest.mark.few(1)
def test_fifty_updates(both: tuple[Any, XLNet]) -> None:
    """A loop as their users write it, and the steps of our trainer: the same curve, and the same network at its end.

    The vector that the query stream starts with is a matrix of one row there: it decays in neither.
    """
    theirs, own = both
    positions_in_double(theirs)
    train = config().train
    named = dict(theirs.named_parameters())
    flat = [p for name, p in named.items() if p.dim() == 1 or name.endswith("mask_emb")]
    decaying = [p for p in named.values() if all(p is not other for other in flat)]
    groups = [{"params": decaying, "weight_decay": train.weight_decay}, {"params": flat, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=train.learning_rate, betas=train.betas, eps=train.eps)
    objective = permutation_objective(own, train)
    found = curves(theirs, own, train, objective, batches(), lambda batch: loss_of(theirs, batch), adamw)
    assert found[1] == pytest.approx(found[0], rel=0, abs=SAME_LOSS)
    assert np.mean(found[0][-5:]) < found[0][0] - 0.5
    for key, value in xlnet_file_tensors(
        {name: p.detach() for name, p in own.named_parameters()}, LAYERS, HEADS
    ).items():
        torch.testing.assert_close(value, named[key], atol=SAME_WEIGHT, rtol=0)


@pytest.mark.parametrize("tied", [True, False])
def test_what_is_saved_has_the_same_logits(tied: bool, tmp_path: Path) -> None:
    saved(tmp_path / "model", tie_word_embeddings=tied)
    model, out = read(tmp_path / "model"), tmp_path / "out"
    with torch.no_grad():
        for parameter in model.network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    layout = XLNetLayout(model)
    layout.write_companions(out)
    layout.write_weights(out, dict(model.network.named_parameters()), "")
    again = transformers.AutoModelForCausalLM.from_pretrained(out).eval()
    src = next(batches()).src
    torch.testing.assert_close(model.network.eval()(src), again(src).logits, atol=1e-5, rtol=1e-5)


def scaled(x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    """What stands for dropout: no mask, but a factor by which a wrong rate, or one too few, would be seen."""
    return x * (1 - p / 2) if training else x


def test_what_transformers_drops_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = saved(tmp_path, dropout=0.2).train()
    monkeypatch.setattr(torch.nn.functional, "dropout", scaled)
    monkeypatch.setattr(Dropout, "forward", lambda self, x: scaled(x, self.p, self.training))
    own, batch = read(tmp_path, 0.2).network, next(batches())
    found = permutation_objective(own, config().train)(batch).objective / batch.n_targets
    torch.testing.assert_close(found, loss_of(theirs, batch), atol=1e-5, rtol=1e-5)
    unfreeze(own, 0.0)
    assert abs(permutation_objective(own, config().train)(batch).objective / batch.n_targets - found) > 1e-3

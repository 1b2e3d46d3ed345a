"""A ViT is trained as `transformers` trains it: the same loss, gradients, and fifty updates of AdamW."""

import warnings
from collections.abc import Iterator
from contextlib import closing
from copy import deepcopy
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from side_by_side import SAME_LOSS, curves

from headwise.config.settings import RunConfig, apply_settings, load_recipe
from headwise.core.build import build
from headwise.core.dropout import Dropout
from headwise.pytorch.architectures.hf_layouts import vit_config
from headwise.pytorch.checkpoint.from_scratch import picture_layout
from headwise.pytorch.checkpoint.tuned import SameLayout
from headwise.pytorch.checkpoint.write import file_tensors
from headwise.pytorch.data.image import Preprocessing
from headwise.pytorch.data.pictures import PictureBatch, PictureDataset, read_pictures
from headwise.pytorch.tasks.heads import network_with_head, pretrained_head, with_head
from headwise.pytorch.tasks.pictures import FINE_TUNING, picture_objective
from headwise.pytorch.tasks.pretrained import make_trainable
from headwise.runtime.checkpoint.read import read_folder

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what transformers imports
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
Image = pytest.importorskip("PIL.Image")

SHAPE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24, "image_size": 8,
         "patch_size": 4, "num_labels": 3, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}  # fmt: skip
TRAIN = ["train.max_steps=50", "train.learning_rate=0.01", "train.warmup_steps=5", "train.label_smoothing=0.0",
         "train.optimizer=adam"]  # fmt: skip


@pytest.fixture
def both(tmp_path: Path) -> tuple[Any, Any, Any]:
    """The model in transformers, ours made of the folder that it saves, and what was read."""
    torch.manual_seed(3)
    theirs = transformers.ViTForImageClassification(transformers.ViTConfig(**SHAPE))
    theirs.save_pretrained(tmp_path / "vit")
    model = read_folder(tmp_path / "vit", dtype="float32")
    return theirs.train(), make_trainable(model.network, 0.0).train(), model


def config() -> RunConfig:
    return apply_settings(load_recipe("vit"), TRAIN)


def batches(folder: Path, steps: int) -> Iterator[PictureBatch]:
    """Pictures in three colours that a network can tell apart."""
    generator = np.random.default_rng(0)
    for label in range(3):
        (folder / str(label)).mkdir(parents=True)
        for i in range(8):
            pixels = generator.integers(0, 150, (8, 8, 3), dtype=np.uint8)
            pixels[:, :, label] += 80
            Image.fromarray(pixels).save(folder / str(label) / f"{i}.png")
    pictures = PictureDataset(read_pictures([str(folder)]), ("0", "1", "2"), Preprocessing(size=(8, 8)), 4)
    with closing(pictures.stream(6, 1, None)) as stream:
        yield from islice(stream, steps)


def in_file(network: Any, model: Any, gradients: bool = False) -> dict[str, torch.Tensor]:
    own = {name: p.grad if gradients else p.detach() for name, p in network.named_parameters()}
    assert all(value is not None for value in own.values())
    return file_tensors(own, model.config)


def gradients_in_file(theirs: Any, folder: Path) -> dict[str, torch.Tensor]:
    """Its files have other names than its modules: its gradients as it would save them."""
    as_weights = deepcopy(theirs)
    for weight, parameter in zip(as_weights.parameters(), theirs.parameters(), strict=True):
        weight.data = parameter.grad
    as_weights.save_pretrained(folder)
    return load_file(folder / "model.safetensors")


def test_loss_and_gradients(both: tuple[Any, Any, Any], tmp_path: Path) -> None:
    theirs, own, model = both
    batch = next(batches(tmp_path / "pictures", 1))
    loss = theirs(pixel_values=batch.pixels, labels=batch.labels).loss
    loss.backward()
    found = picture_objective(own, config().train)(batch)
    (found.objective / batch.n_targets).backward()
    torch.testing.assert_close(found.objective / batch.n_targets, loss, atol=1e-5, rtol=1e-5)
    expected = gradients_in_file(theirs, tmp_path / "gradients")
    gradients = in_file(own, model, gradients=True)
    assert gradients.keys() == expected.keys() and len(gradients) > 30
    for key, value in gradients.items():
        torch.testing.assert_close(
            value, expected[key], atol=1e-5, rtol=1e-4, msg=lambda text, key=key: f"{key}: {text}"
        )


def test_fifty_updates(both: tuple[Any, Any, Any], tmp_path: Path) -> None:
    theirs, own, _ = both
    train = config().train
    objective = picture_objective(own, train)
    found = curves(
        theirs,
        own,
        train,
        objective,
        batches(tmp_path / "pictures", train.max_steps),
        lambda batch: theirs(pixel_values=batch.pixels, labels=batch.labels).loss,
    )
    assert found[1] == pytest.approx(found[0], rel=0, abs=SAME_LOSS)
    assert found[0][-1] < found[0][0] - 0.5


@pytest.mark.parametrize("kind", ["ViT", "DeiT"])
@pytest.mark.parametrize("head", ["ForImageClassification", "Model", "ForImageClassificationWithTeacher"])
def test_what_a_body_becomes_is_loaded_with_the_same_logits(kind: str, head: str, tmp_path: Path) -> None:
    """A new head, or the one that there is, saved: `AutoModelForImageClassification` computes the same."""
    if not hasattr(transformers, f"{kind}{head}"):
        pytest.skip("ViT has no teacher")
    torch.manual_seed(3)
    saved = getattr(transformers, f"{kind}{head}")(getattr(transformers, f"{kind}Config")(**SHAPE))
    saved.save_pretrained(tmp_path / "in")
    base = FINE_TUNING.read(str(tmp_path / "in"))
    model = with_head(base, "image_class", ["a", "b", "c"])
    known = pretrained_head(base, model)
    assert bool(known) == (head != "Model")
    own = network_with_head(base, model, known, 0.0).eval()
    layout = SameLayout(model)
    layout.write_companions(tmp_path / "out")
    layout.write_weights(tmp_path / "out", dict(own.named_parameters()), "")
    theirs, report = transformers.AutoModelForImageClassification.from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert theirs.config.id2label == {0: "a", 1: "b", 2: "c"}
    pixels = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(own(pixels), theirs.eval()(pixel_values=pixels).logits, atol=1e-5, rtol=1e-5)
    if head == "ForImageClassification":
        torch.testing.assert_close(own(pixels), saved.eval()(pixel_values=pixels).logits, atol=1e-5, rtol=1e-5)


def scaled(x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    return x * (1 - p / 2) if training else x


def own_scaled(self: Dropout, x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
    x = scaled(x, self.p, self.training)
    return x if residual is None else residual + x


@pytest.mark.parametrize("kind", ["ViT", "DeiT"])
def test_everything_is_dropped_that_transformers_drops(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the place of masks stand factors by which a wrong rate, or one too few, would be seen."""
    rates = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.2, "initializer_range": 0.25}
    torch.manual_seed(3)
    theirs = getattr(transformers, f"{kind}ForImageClassification")(
        getattr(transformers, f"{kind}Config")(**SHAPE | rates, attn_implementation="eager")
    ).train()
    theirs.save_pretrained(tmp_path)
    base = FINE_TUNING.read(str(tmp_path))
    own = network_with_head(base, base, pretrained_head(base, base), 0.1).train()
    monkeypatch.setattr(torch.nn.functional, "dropout", scaled)
    monkeypatch.setattr(Dropout, "forward", own_scaled)
    pixels = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(own(pixels), theirs(pixel_values=pixels).logits, atol=1e-5, rtol=1e-5)


def test_what_begins_here_is_read_by_transformers(tmp_path: Path) -> None:
    shape = ["model.d_model=16", "model.d_ff=24", "model.n_heads=2", "model.n_encoder_layers=2", "model.image_size=8"]
    settings = apply_settings(load_recipe("vit"), shape)
    axes = vit_config(replace(settings.model, n_outputs=2))
    network, layout = build(axes).eval(), picture_layout(axes, ("cat", "dog"))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    layout.write_settings(tmp_path, settings, None, {})
    layout.write_weights(tmp_path, dict(network.named_parameters()), "")
    again = transformers.AutoModelForImageClassification.from_pretrained(tmp_path).eval()
    pixels = torch.randn(2, 3, 8, 8)
    assert again.config.id2label == {0: "cat", 1: "dog"}
    torch.testing.assert_close(network(pixels), again(pixels).logits, atol=1e-5, rtol=1e-5)

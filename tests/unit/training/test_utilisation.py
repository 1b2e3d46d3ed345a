"""Operations of a training step, compared with those that torch counts."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from headwise.config.model import ConvConfig, TransformerConfig
from headwise.config.training import TrainConfig
from headwise.core.batches import Batch, collate
from headwise.pytorch.architectures.build import build_conv
from headwise.pytorch.architectures.transformer import build_model, build_pooled_transformer
from headwise.pytorch.data.conditional_generation import collate_conditional
from headwise.pytorch.data.labelled import collate_labelled
from headwise.pytorch.training.low_rank import adapt
from headwise.pytorch.training.metrics import Clock
from headwise.pytorch.training.step import translation_objective
from headwise.pytorch.training.utilisation import operations_of

SHAPE: dict[str, Any] = {"vocab_size": 40, "d_model": 16, "d_ff": 24, "n_heads": 2, "dropout": 0.0}
SIZES: dict[str, Any] = {"n_encoder_layers": 2, "n_decoder_layers": 3}
CONV: dict[str, Any] = {"vocab_size": 40, "d_model": 16, "dropout": 0.0, "positions": "learned", **SIZES}
PRODUCTS = ("aten.mm", "aten.addmm", "aten.convolution", "aten.convolution_backward")


class NoWaiting:
    """A stream that is never waited for."""

    wait_seconds = 0.0

    def __iter__(self) -> Iterator[Batch]:
        raise NotImplementedError

    def state(self) -> dict[str, int]:
        raise NotImplementedError

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def _without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch counts its own products only."""
    for module in ("core.loss", "pytorch.training.packed"):
        monkeypatch.setattr(f"headwise.{module}.training_library", lambda: None)


def counted(objective: Callable[[], Tensor]) -> int:
    """The operations of products with parameters, forward and backward."""
    with FlopCounterMode(display=False) as counter:
        objective().backward()
    return sum(n for op, n in counter.get_flop_counts()["Global"].items() if str(op).startswith(PRODUCTS))


def pairs(src: int, tgt: int) -> Batch:
    """Four pairs without padding, of this many tokens with EOS."""
    return collate([([5] * (src - 1), [6] * (tgt - 1))] * 4, 0, 1, 2)


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "tied": lambda: build_model(TransformerConfig(**SHAPE, **SIZES)),
    "untied": lambda: build_model(TransformerConfig(**SHAPE, **SIZES, tied_embeddings="none", gated=True)),
    "convolutions": lambda: build_conv(ConvConfig(**CONV)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_an_encoder_decoder(name: str) -> None:
    model, batch = NETWORKS[name](), pairs(7, 5)
    objective = translation_objective(model, 0, TrainConfig())
    of_projection = 2 * 20 * 40 * 16  # targets, vocabulary, width: torch does not count addmm_, in place
    assert operations_of(model)(batch) == counted(lambda: objective(batch).objective) + of_projection


def test_adapters() -> None:
    """Frozen parameters have no gradient."""
    model, batch = build_model(TransformerConfig(**SHAPE, **SIZES)), pairs(7, 5)
    layers = [[name] for name, module in model.named_modules() if name.endswith(("q_proj", "up_proj"))]
    adapt(model, layers, 2, 4.0, 0.0, whole=[])
    objective = translation_objective(model, 0, TrainConfig())
    # The projection's gradient is not needed, but computed; gradients of the first layer's inputs are not.
    assert operations_of(model)(batch) == pytest.approx(counted(lambda: objective(batch).objective), rel=0.1)
    assert operations_of(model)(batch) < 0.75 * operations_of(build_model(TransformerConfig(**SHAPE, **SIZES)))(batch)


def test_a_classifier() -> None:
    model = build_pooled_transformer(TransformerConfig(**SHAPE, **SIZES, n_outputs=3))
    batch = collate_labelled([[5] * 6] * 4, [0, 1, 2, 0], 0, 2)
    assert operations_of(model)(batch) == counted(lambda: model(batch.src, batch.src_mask).sum())


def test_padding_and_sounds_do_not_count() -> None:
    operations = operations_of(build_model(TransformerConfig(**SHAPE, **SIZES)))
    padded = collate([([5] * 6, [6] * 4), ([5], [6])], 0, 1, 2)
    alone = [collate([pair], 0, 1, 2) for pair in [([5] * 6, [6] * 4), ([5], [6])]]
    assert operations(padded) == sum(map(operations, alone)) > 0
    assert operations(collate_conditional([torch.zeros(2, 4)], [[5, 6]], [1], 2)) == 0


def test_utilisation(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 2.0, 2.0, 2.0])
    monkeypatch.setattr("headwise.pytorch.training.metrics.time.monotonic", lambda: next(now))
    clock = Clock(NoWaiting(), operations=lambda batch: 3 * 10**12, peak=6e12)
    clock.count([pairs(3, 3)] * 2)
    figures = clock.figures(0)
    assert (figures["tflops"], figures["mfu"]) == (3.0, 0.5)
    unknown = Clock(NoWaiting())
    unknown.count([pairs(3, 3)])
    assert not {"tflops", "mfu"} & unknown.figures(0).keys()

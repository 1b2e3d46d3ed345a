"""Transformers of all kinds with random parameters, in float32, and sentences for them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from headwise.config.model import TransformerConfig
from headwise.core.transformer import Transformer
from headwise.pytorch.architectures.transformer import build_model
from headwise.runtime.native import library as c

SMALL = {
    "vocab_size": 12,
    "d_model": 16,
    "d_ff": 24,
    "n_heads": 2,
    "n_encoder_layers": 2,
    "n_decoder_layers": 2,
    "dropout": 0.0,
}


@pytest.fixture
def build() -> Callable[..., Transformer]:
    """A model with changed fields of its configuration and random parameters; `peak` multiplies its logits."""

    def make(peak: float = 1.0, **changes: Any) -> Transformer:
        model = build_model(TransformerConfig(**{**SMALL, **changes})).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                drawn = torch.randn_like(parameter)
                norm = name.endswith("norm.weight")
                parameter.copy_(1 + drawn / 4 if norm else drawn / parameter.size(-1) ** 0.5)
            if changes.get("tied_embeddings") != "all":
                model.output.weight *= peak
        return model

    return make


@pytest.fixture
def sentences() -> Callable[..., list[list[int]]]:
    """Sources of these lengths, without special tokens."""

    def draw(*lengths: int, vocab: int = 12) -> list[list[int]]:
        return [torch.randint(4, vocab, (length,)).tolist() for length in lengths]

    return draw


@pytest.fixture
def padded() -> Callable[[list[list[int]]], tuple[Tensor, Tensor]]:
    """Sources as a padded matrix, and its mask."""

    def pad(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
        src = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
        return src, src != 0

    return pad


@pytest.fixture(params=c.usable_builds())
def instructions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The library for each instruction set of this processor."""
    monkeypatch.setattr(c, "library", lambda: c.opened(request.param))
    return request.param

"""Models small enough to check exactly: float64, no dropout, and small inputs for them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from headwise.config.model import TransformerConfig
from headwise.core.transformer import Transformer
from headwise.pytorch.architectures.transformer import build_model

SMALL = {
    "vocab_size": 11,
    "d_model": 8,
    "d_ff": 16,
    "n_heads": 2,
    "n_encoder_layers": 2,
    "n_decoder_layers": 2,
    "dropout": 0.0,
}


@pytest.fixture
def build_small() -> Callable[..., Transformer]:
    """A small model with changed fields of its configuration; every parameter is random, none zero or one."""

    def build(**changes: Any) -> Transformer:
        model = build_model(TransformerConfig(**{**SMALL, **changes})).double().eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn_like(parameter) / 2)
        return model

    return build


@pytest.fixture(params=["post", "pre"])
def model(request: pytest.FixtureRequest, build_small: Callable[..., Transformer]) -> Transformer:
    """A small model, once with each position of the norm."""
    return build_small(norm_position=request.param)

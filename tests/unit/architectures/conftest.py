"""Small variants of recurrent and convolutional networks: float64, no dropout, no parameter zero or one."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from headwise.config.model import ModelConfig
from headwise.config.settings import check, from_dict
from headwise.pytorch.architectures.registry import Network, build_network

SMALL: dict[str, Any] = {
    "vocab_size": 11,
    "d_model": 6,
    "n_encoder_layers": 2,
    "n_decoder_layers": 2,
    "dropout": 0.0,
}
RECURRENT: dict[str, Any] = {"architecture": "recurrent", "bidirectional": False}
VARIANTS: dict[str, dict[str, Any]] = {
    "rnn": {**RECURRENT, "cell": "rnn", "attention": "none"},
    "lstm-reversed": {**RECURRENT, "cell": "lstm", "attention": "none", "reverse_source": True},
    "gru-summary": {**RECURRENT, "attention": "none", "bidirectional": True, "n_encoder_layers": 1},
    "bahdanau": {**RECURRENT, "bidirectional": True, "n_encoder_layers": 1, "n_decoder_layers": 1},
    "additive-lstm": {**RECURRENT, "cell": "lstm", "reverse_source": True},
    "dot": {**RECURRENT, "cell": "lstm", "attention": "dot"},
    "general": {**RECURRENT, "attention": "general", "bidirectional": True, "reverse_source": True},
    "dot-feeding": {**RECURRENT, "cell": "rnn", "attention": "dot", "input_feeding": True},
    "luong": {**RECURRENT, "cell": "lstm", "attention": "general", "input_feeding": True},
    "conv": {"architecture": "conv", "positions": "learned", "max_len": 24},
    "conv-wide": {"architecture": "conv", "positions": "learned", "max_len": 24, "kernel_width": 5},
    "conv-pointwise": {"architecture": "conv", "positions": "learned", "max_len": 24, "kernel_width": 1},
}


@pytest.fixture
def configure() -> Callable[..., ModelConfig]:
    """A valid configuration of a variant with changed fields."""

    def make(variant: str, **changes: Any) -> ModelConfig:
        fields = {**SMALL, **VARIANTS[variant], **changes}
        return check(from_dict({"model": fields}, "test")).model

    return make


@pytest.fixture
def build_small(configure: Callable[..., ModelConfig]) -> Callable[..., Network]:
    """A small model of a variant."""

    def build(variant: str, **changes: Any) -> Network:
        model = build_network(configure(variant, **changes)).double().eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn_like(parameter) / 2)
        return model

    return build


@pytest.fixture(params=VARIANTS)
def model(request: pytest.FixtureRequest, build_small: Callable[..., Network]) -> Network:
    """A small model of each variant."""
    return build_small(request.param)

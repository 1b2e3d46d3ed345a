"""All architectures by name. Code that trains, searches or saves a network builds it here."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import nn

from headwise.config.model import ModelConfig
from headwise.core.build import load_parameters
from headwise.core.extensions.pooled import PooledEncoder
from headwise.core.transformer import DecoderOnly, Transformer
from headwise.errors import UserError, unknown
from headwise.pytorch.architectures.build import build_conv, build_pooled_conv, build_pooled_recurrent, build_recurrent
from headwise.pytorch.architectures.conv import Convolutional
from headwise.pytorch.architectures.recurrent import Recurrent
from headwise.pytorch.architectures.transformer import build_model, build_pooled_transformer
from headwise.pytorch.search.inference import PrecisionVariants

Network = Transformer | Recurrent | Convolutional
Kind = TypeVar("Kind", bound=nn.Module)

ARCHITECTURES: dict[str, Callable[[Any], Network]] = {
    "transformer": build_model,
    "recurrent": build_recurrent,
    "conv": build_conv,
}

POOLED: dict[str, Callable[[Any], PooledEncoder]] = {  # the encoder alone, with a pooled output
    "transformer": build_pooled_transformer,
    "recurrent": build_pooled_recurrent,
    "conv": build_pooled_conv,
}


def build_network(config: ModelConfig) -> Network:
    """A network with random initial parameters from torch's global generator."""
    if config.architecture not in ARCHITECTURES:
        raise unknown("architecture", config.architecture, ARCHITECTURES)
    assert config.vocab_size > 0, "vocab_size is set from the tokenizer"
    return ARCHITECTURES[config.architecture](config)


def build_pooled_network(config: ModelConfig) -> PooledEncoder:
    """An encoder with pooled output, for classification or forecasting, with random initial parameters."""
    assert config.n_outputs > 0, "n_outputs is set from the data"
    return POOLED[config.architecture](config)


def with_parameters(
    build: Callable[[ModelConfig], Kind], config: ModelConfig, parameters: Mapping[str, Any], origin: str
) -> Kind:
    """A network of `config` with these parameters, arrays by their names in a file, in evaluation mode.

    Raises:
        UserError: they do not fit; `origin` is named in the message.
    """
    with torch.random.fork_rng(devices=[]):  # keeps the caller's random state
        network = build(config)
    load_parameters(network, {name: torch.from_numpy(array) for name, array in parameters.items()}, origin)
    return network.eval()


def decoding_variants(network: nn.Module, automatic: str = "float32") -> Callable[[str], Any]:
    """A function that returns the network for `SearchSettings.compute`; only Transformers have other precisions.

    `automatic` is what "auto" stands for.
    """
    if isinstance(network, Transformer | DecoderOnly):
        return PrecisionVariants(network, automatic)

    def variant(compute: str) -> nn.Module:
        if compute not in ("auto", "float32", "torch"):
            raise UserError(f"decode.compute = {compute} is for the Transformer; this model decodes in float32")
        return network

    return variant

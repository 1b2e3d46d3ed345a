"""Every architecture by its name: the one table between a configuration and the packages that hold modules.

`families/sightline.py` and `architectures/build.py` say how each is put together; a builder is imported when a
configuration asks for it. Whoever trains, searches or saves a network gets it from here and knows no name.
"""

from collections.abc import Callable, Mapping
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from sightline.config.model import ModelConfig
from sightline.errors import UserError, unknown
from sightline.network.parameters import load_parameters
from sightline.network.prepared import PreparedForms
from sightline.network.transformer import Transformer

if TYPE_CHECKING:
    from sightline.architectures.conv import Convolutional
    from sightline.architectures.recurrent import Recurrent
    from sightline.network.pooled import PooledEncoder

    Network = Transformer | Recurrent | Convolutional

Kind = TypeVar("Kind", bound=nn.Module)

ARCHITECTURES = {  # name -> module:function, from a ModelConfig to a network
    "transformer": "sightline.families.sightline:build_model",
    "recurrent": "sightline.architectures.build:build_recurrent",
    "conv": "sightline.architectures.build:build_conv",
}

POOLED = {  # the same for the encoder alone
    "transformer": "sightline.families.sightline:build_pooled_transformer",
    "recurrent": "sightline.architectures.build:build_pooled_recurrent",
    "conv": "sightline.architectures.build:build_pooled_conv",
}


def build_network(config: ModelConfig) -> "Network":
    """The network of `config` with fresh parameters from torch's global generator."""
    if config.architecture not in ARCHITECTURES:
        raise unknown("architecture", config.architecture, ARCHITECTURES)
    assert config.vocab_size > 0, "vocab_size is known once a tokenizer is"
    build: Callable[[ModelConfig], Network] = resolve_name(ARCHITECTURES[config.architecture])
    return build(config)


def build_pooled(config: ModelConfig) -> "PooledEncoder":
    """The encoder alone, many to one, with fresh parameters: for classes, or for a series."""
    assert config.n_outputs > 0, "n_outputs is known once the data are"
    build: Callable[[ModelConfig], PooledEncoder] = resolve_name(POOLED[config.architecture])
    return build(config)


def with_parameters(
    build: Callable[[ModelConfig], Kind], config: ModelConfig, parameters: Mapping[str, Any], origin: str
) -> Kind:
    """A network of `config` with these parameters, arrays by their names in a file, in evaluation mode.

    Raises:
        UserError: they do not fit; `origin` says where they are from.
    """
    with torch.random.fork_rng(devices=[]):  # fresh parameters are drawn and overwritten: not at the caller's cost
        network = build(config)
    load_parameters(network, {name: torch.from_numpy(array) for name, array in parameters.items()}, origin)
    return network.eval()


def decoding_forms(network: "Network") -> Callable[[str], Any]:
    """What gives the network in the form for `SearchSettings.compute`; only the Transformer has others than itself."""
    if isinstance(network, Transformer):
        return PreparedForms(network)

    def form(compute: str) -> "Network":
        if compute != "float32":
            raise UserError(f"decode.compute = {compute} is for the Transformer; this model decodes in float32")
        return network

    return form


def __getattr__(name: str) -> Any:
    """The type `Network`, for whoever asks for it at run time: that takes every architecture there is."""
    if name != "Network":
        raise AttributeError(f"module 'sightline.architectures.registry' has no attribute '{name}'")
    kinds = ("architectures.recurrent:Recurrent", "architectures.conv:Convolutional")
    recurrent, conv = (resolve_name(f"sightline.{kind}") for kind in kinds)
    return Transformer | recurrent | conv

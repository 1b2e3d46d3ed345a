"""The part of reading model folders that needs torch: networks, and most pretrained models.

`runtime.checkpoint.read` imports this module when it is first needed.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from headwise.config.settings import WITH_DECODER, ModelConfig
from headwise.contract import SearchEngine
from headwise.device import capability_of, decoding_precision
from headwise.errors import UserError
from headwise.families.registry import FAMILIES
from headwise.pytorch.architectures.registry import (
    build_network,
    build_pooled_network,
    decoding_variants,
    with_parameters,
)
from headwise.pytorch.checkpoint.imported import read_pretrained
from headwise.pytorch.search.ensemble import AveragedNetworks
from headwise.pytorch.search.inference import rounded
from headwise.pytorch.search.stepwise import TorchEngine
from headwise.runtime.checkpoint.folder import Folder
from headwise.runtime.checkpoint.stored_network import Built, StoredNetwork
from headwise.runtime.formats.weights import WeightsFile


def build_trained(config: ModelConfig, weights: WeightsFile, device: str) -> Built:
    """A network trained here with its weights, in evaluation mode, and what gives its forms for decoding."""
    build: Any = build_network if config.task in WITH_DECODER else build_pooled_network
    network = with_parameters(build, config, weights, str(weights.path)).to(device)
    return prepared(network, _automatic(device))


def build_published(folder: Path, device: str, dtype: str) -> Built:
    """The same for a pretrained network."""
    return prepared(read_pretrained(folder, device, dtype).network)


def read_published(folder: Path, device: str, dtype: str, ignore_keys: Collection[str] = ()) -> Folder:
    """A pretrained model of any kind; arguments as for `read_folder`."""
    found = read_pretrained(folder, device, dtype, ignore_keys)
    automatic = _automatic(device, getattr(found.config, "family", "")) if dtype == "auto" else "float32"
    return replace(found, stored=StoredNetwork(lambda: prepared(found.network, automatic), None))


def prepared(network: Any, automatic: str = "float32") -> Built:
    """A network and what gives its forms for decoding; `automatic` is that of `decode.compute` = "auto"."""
    return network, decoding_variants(network, automatic)


def _automatic(device: str, family: str = "") -> str:
    """The precision of decoding on a device, of a model trained here or of a family."""
    return decoding_precision(device, capability_of(device), family in FAMILIES and FAMILIES[family].overflows)


def average_engines(engines: Sequence[Any], networks: Sequence[Any], compute: str) -> SearchEngine:
    """One engine of several, whose log-probabilities are averaged; torch searches with all their networks."""
    members = []
    for engine, network in zip(engines, networks, strict=True):
        if isinstance(engine, TorchEngine):
            members.append(engine.model)
            continue
        if (numbers := next(network.parameters()).dtype) != torch.float32:
            raise UserError(f"a model is loaded in {numbers}; models that torch averages have to be in float32")
        members.append(rounded(network) if compute == "bfloat16" else network)
    return TorchEngine(AveragedNetworks(members))

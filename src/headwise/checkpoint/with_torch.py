"""What of reading folders needs torch: networks of models trained here, searching with them, and pretrained models.

A `checkpoint.trained_network.TorchSide`. Whoever has torch anyway reads folders with `read_any`; `models.load` imports
this module when it is first needed.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from headwise.architectures.registry import build_network, build_pooled_network, decoding_forms, with_parameters
from headwise.checkpoint.folder import Folder
from headwise.checkpoint.imported import read_published
from headwise.checkpoint.read import read_folder
from headwise.checkpoint.weights import WeightsFile
from headwise.config.settings import WITH_DECODER, ModelConfig
from headwise.contract import SearchEngine
from headwise.decode.ensemble import AveragedNetworks
from headwise.decode.stepwise import TorchEngine, engine_of
from headwise.errors import UserError
from headwise.network.inference import rounded

__all__ = ["average_engines", "build_trained", "engine_of", "read_any", "read_published"]


def read_any(
    path: str | Path,
    device: str = "cpu",
    dtype: str = "file",
    tasks: Sequence[str] | None = None,
    published: bool = True,
) -> Folder:
    """`read.read_folder` where torch is there anyway."""
    torch_side: Any = sys.modules[__name__]
    return read_folder(path, device, dtype, tasks, published, lambda: torch_side)


def build_trained(config: ModelConfig, weights: WeightsFile, device: str) -> tuple[Any, Any]:
    """A network with its weights, in evaluation mode, and what gives its forms for decoding."""
    build: Any = build_network if config.task in WITH_DECODER else build_pooled_network
    network = with_parameters(build, config, weights, str(weights.path)).to(device)
    return network, decoding_forms(network)


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

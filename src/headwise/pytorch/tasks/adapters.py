"""Fine-tuning with LoRA adapters, for the job of any task that starts from a pretrained model.

Objective and validation are the job's. See `pytorch/training/low_rank.py` for the adapters and
`pytorch/checkpoint/adapter_layout.py` for their folder.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headwise.config.network import NetworkConfig
from headwise.config.settings import RunConfig
from headwise.core.build import build_empty, count_parameters
from headwise.errors import UserError
from headwise.families.table import Entry
from headwise.pytorch.checkpoint.adapter_layout import AdapterLayout, adaptable, head_entries
from headwise.pytorch.checkpoint.tuned import SameLayout
from headwise.pytorch.tasks.heads import CLASS_SUFFIXES
from headwise.pytorch.tasks.job import Job, TrainRequest, notify
from headwise.pytorch.training.low_rank import adapt, merged
from headwise.pytorch.training.validation import Outputs, Shard
from headwise.runtime.checkpoint.layout import CONFIG, adapters_in, read_json

KEPT = 3  # numbers per trained weight: the gradient and two moments of Adam


@Job.register
@dataclass(frozen=True)
class LoraJob:
    """A `Job` with adapters; all other attributes are those of `job`."""

    job: Job
    layout: AdapterLayout
    about: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.job, name)

    def network(self) -> nn.Module:
        """The job's network, with all weights frozen but adapters and a new head."""
        network, train = self.job.network(), self.layout.train
        layers = [[name.removesuffix(".weight") for name in entry.names] for entry in self.layout.layers]
        whole = [name for entry in self.layout.heads for name in entry.names]
        adapt(network, layers, train.lora_rank, train.lora_alpha, train.lora_dropout, whole)
        return network

    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        """The job's outputs, with the adapters merged into the weights."""
        with merged(network):
            return self.job.outputs(network, device, shard)


def with_adapters(job: Job, request: TrainRequest) -> Any:
    """The job with the adapters of [train]; `UserError` if the model does not support adapters."""
    config = job.config
    _check(job, request, config)
    inner: Any = job.layout
    network = build_empty(inner.model.config)
    layers = adaptable(network, inner.model, [name.strip() for name in config.train.lora_layers.split(",")])
    heads = head_entries(network, inner.model) if inner.model.config.head in CLASS_SUFFIXES else []
    row = _row(network, config, layers, heads)
    notify(request, f"adapters: {row}")
    about = {**job.about, "network": {**job.about.get("network", {}), "adapters": row}}
    return LoraJob(job, AdapterLayout(inner, Path(request.init), config.train, layers, heads), about)


def _check(job: Job, request: TrainRequest, config: RunConfig) -> None:
    rank = f"train.lora_rank = {config.train.lora_rank}"
    if not request.init or not isinstance(job.layout, SameLayout):
        raise UserError(f"{rank}: adapters need a pretrained model; start from one with --init, or leave it out")
    if adapters_in(Path(request.init)):
        raise UserError(f"{rank}: --init {request.init} has adapters; merge them first with `headwise export --to hf`")
    if not isinstance(job.layout.model.config, NetworkConfig):
        raise UserError(f"{rank}: XLNet does not support adapters; leave it out")
    if "family" in read_json(job.layout.model.path / CONFIG):
        raise UserError(f"{rank}: --init {request.init} was imported; start from the original folder")
    if config.train.optimizer != "adam":
        raise UserError(f"{rank}: adapters need train.optimizer = adam")


def _row(network: nn.Module, config: RunConfig, layers: Sequence[Entry], heads: Sequence[Entry]) -> str:
    """The row of the model card."""
    rank, sizes = config.train.lora_rank, {name: p.numel() for name, p in network.named_parameters()}
    shapes = {name: p.shape for name, p in network.named_parameters()}
    trained = sum(rank * (shapes[e.names[0]][1] + sum(shapes[name][0] for name in e.names)) for e in layers)
    trained += sum(sizes[name] for entry in heads for name in entry.names)
    total, kept = count_parameters(network), KEPT * 4 / 2**20
    head = " and of the head" if heads else ""
    return (
        f"rank {rank}, alpha {config.train.lora_alpha:g}, on {len(layers)} layers ({config.train.lora_layers}){head}: "
        f"{trained:,} of {total:,} parameters are trained ({trained / total:.2%}); gradients and moments take "
        f"{trained * kept:,.1f} MiB instead of {total * kept:,.1f}"
    )

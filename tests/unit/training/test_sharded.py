"""Where a sharded model lies; that it trains as a whole one does is `test_parallel.py`."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy
from unit.training.ranks_program import MODEL

from sightline.families.sightline import build_model
from sightline.training import sharded


def test_offloaded_parts_stay_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch is told so of every layer and of the rest, and nothing goes to a device as a whole: here there is none."""
    told: list[tuple[nn.Module, dict[str, Any]]] = []
    monkeypatch.setattr(sharded, "fully_shard", lambda module, **options: told.append((module, options)))
    monkeypatch.setattr(sharded, "mesh", lambda device: f"all of {device.type}")
    network = build_model(MODEL)
    root = sharded.shard(network, "bf16", torch.device("cuda"), offload=True)
    layers = [*network.encoder.layers, *network.decoder.layers]
    assert [module for module, _ in told] == [*layers, root]
    assert all(options["offload_policy"] == CPUOffloadPolicy(pin_memory=True) for _, options in told)
    assert {options["mesh"] for _, options in told} == {"all of cuda"}
    told.clear()
    sharded.shard(network, "bf16", torch.device("cpu"))
    assert len(told) == len(layers) + 1 and not any("offload_policy" in options for _, options in told)
    assert {options["mesh"] for _, options in told} == {"all of cpu"}  # also where there are CUDA devices

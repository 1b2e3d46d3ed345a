"""Where a sharded model lies; that it trains as a whole one does is `test_parallel.py`."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy
from unit.training.ranks_program import MODEL

from sightline.config import RunConfig, TrainConfig
from sightline.families.sightline import build_model
from sightline.group import network_and_kind
from sightline.training import sharded
from sightline.training.ranks import Ranks
from sightline.training.shares import Validation


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


def test_what_is_judged_is_a_copy_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a published model, whose job trains the one network that was read."""
    monkeypatch.setattr(sharded, "shard", lambda network, *given, **options: network)
    only, judged = build_model(MODEL), list[nn.Module]()

    def validation(network: nn.Module, device: torch.device) -> Validation:
        judged.append(network)
        return Validation(lambda mine: {}, lambda said: {})

    config = RunConfig(train=TrainConfig(shard="full", accumulate=2))
    asked: dict[str, Any] = {"config": config, "network": lambda: only, "validation": validation}
    others = ("tokenizer", "layout", "about", "signature", "chance", "objective", "stream")
    job: Any = SimpleNamespace(**asked, **dict.fromkeys(others, print))
    trained, kind = network_and_kind(job, Ranks(0, 2, 0, 0, torch.device("cpu"), 1.0, None))
    _, root, replica, _ = kind.args
    assert trained is root is only and judged == [replica] and replica is not only
    own = dict(replica.named_parameters())
    assert all(torch.equal(own[name], p) and own[name] is not p for name, p in only.named_parameters())

"""Sharded models and their checkpoints; `test_parallel.py` tests their training."""

import shutil
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy
from unit.training.ranks_program import CASES, MODEL, flip, made, parallel, train

from headwise.config.settings import RunConfig
from headwise.config.training import TrainConfig
from headwise.errors import UserError
from headwise.pytorch.architectures.transformer import build_model
from headwise.pytorch.tasks import ranks as task_ranks
from headwise.pytorch.tasks.ranks import network_and_trainer
from headwise.pytorch.training import sharded
from headwise.pytorch.training.checkpoint import CHECKPOINTS, checkpoint_paths, verify_checkpoint
from headwise.pytorch.training.ranks import GRACE, Ranks, device_timeout, process_group
from headwise.pytorch.training.sharded import ShardedTrainer


def test_offloaded_parts_stay_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every layer and the root get the offload policy, and the network is not moved to a device."""
    told: list[tuple[nn.Module, dict[str, Any]]] = []
    monkeypatch.setattr("torch.distributed.fsdp.fully_shard", lambda module, **options: told.append((module, options)))
    monkeypatch.setattr(sharded, "device_mesh", lambda device: f"all of {device.type}")
    network = build_model(MODEL)
    root = sharded.shard(network, True, torch.device("cuda"), offload=True)
    layers = [*network.encoder.layers, *network.decoder.layers]
    assert [module for module, _ in told] == [*layers, root]
    assert all(options["offload_policy"] == CPUOffloadPolicy(pin_memory=True) for _, options in told)
    assert {options["mesh"] for _, options in told} == {"all of cuda"}
    assert [options["mp_policy"].param_dtype for _, options in told[:-1]] == [torch.bfloat16] * len(layers)
    told.clear()
    sharded.shard(network, True, torch.device("cpu"))
    assert len(told) == len(layers) + 1 and not any("offload_policy" in options for _, options in told)
    assert {options["mesh"] for _, options in told} == {"all of cpu"}  # also where there are CUDA devices
    assert not any(options["mp_policy"].param_dtype for _, options in told[:-1])  # norms on a CPU take float32 only


def test_offloading_is_off_unless_it_is_switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    job: Any = SimpleNamespace(config=RunConfig(train=TrainConfig(shard="offload")), network=lambda: build_model(MODEL))
    here = Ranks(0, 2, 0, 0, torch.device("cuda:0"), 1.0, None)
    monkeypatch.setattr(task_ranks, "capability_of", lambda _: (8, 0))
    monkeypatch.setattr(task_ranks, "shard", lambda network, *given, **options: network)
    with pytest.raises(UserError, match=r"train.shard = offload [^\n]*HEADWISE_OFFLOAD=1"):
        network_and_trainer(job, here)
    monkeypatch.setenv("HEADWISE_OFFLOAD", "1")
    assert network_and_trainer(job, here)


def test_the_norm_of_offloaded_gradients_is_on_the_device() -> None:
    """Where the sums of the loss are."""
    model = nn.Linear(2, 2)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    one: Any = SimpleNamespace(model=model, device=torch.device("meta"))
    assert ShardedTrainer.gradient_norm(one, one).device.type == "meta"


def test_ours_is_the_first_timeout() -> None:
    """NCCL ends the process when its own is over."""
    assert device_timeout("cpu", 30.0) == timedelta(seconds=30)
    assert all(device_timeout("cuda:1", seconds) > timedelta(seconds=seconds + GRACE) for seconds in (1.0, 600.0))


def test_exchanges_on_the_cpu_have_their_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the timeout that is asked for."""
    groups: list[object] = []
    monkeypatch.setattr("torch.distributed.all_reduce", lambda _, group=None: groups.append(group))
    assert Ranks(0, 1, 0, 0, torch.device("cuda:0"), 1.0, None, "own").all_reduce([2.0], "a sum") == [2.0]
    assert groups == ["own"]


def test_validation_uses_a_separate_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for a pretrained model, whose job trains the loaded network."""
    monkeypatch.setattr(task_ranks, "shard", lambda network, *given, **options: network)
    only = build_model(MODEL)
    config = RunConfig(train=TrainConfig(shard="full", accumulate=2))
    asked: dict[str, Any] = {"config": config, "network": lambda: only}
    others = ("tokenizer", "layout", "about", "signature", "baseline", "objective", "stream", "outputs", "figures")
    job: Any = SimpleNamespace(**asked, **dict.fromkeys(others, print))
    trained, kind = network_and_trainer(job, Ranks(0, 2, 0, 0, torch.device("cpu"), 1.0, None))
    _, root, replica = kind.args
    assert trained is root is only and replica is not only
    own = dict(replica.named_parameters())
    assert all(torch.equal(own[name], p) and own[name] is not p for name, p in only.named_parameters())


# Checkpoints, by one rank of one

SETTINGS: dict[str, Any] = {**CASES["sharded"], "ema": 0.0, "average": 2, "checkpoint_every": 2}  # of steps 2, 4 and 5


@pytest.fixture(scope="module")
def kind() -> Iterator[Any]:
    """The trainer of this process, in its own process group."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}.items():
            patch.setenv(name, str(value))
        with process_group("cpu", 60.0) as ranks:
            yield parallel(ranks)


@pytest.fixture(scope="module")
def ended(kind: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run."""
    return train(tmp_path_factory.mktemp("ended"), kind, **SETTINGS).folder


@pytest.fixture
def folder(ended: Path, tmp_path: Path) -> Path:
    """A copy of the run to be damaged."""
    return shutil.copytree(ended, tmp_path / "copy")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize("damage", [flip, cut, Path.unlink])
@pytest.mark.parametrize("name", ["model.safetensors", "training.safetensors", "state.json"])
def test_damage_and_missing_parts_are_found(name: str, damage: Callable[[Path], None], folder: Path) -> None:
    path = folder / CHECKPOINTS / "step-00000005"
    assert verify_checkpoint(path)["step"] == 5
    damage(path / name)
    with pytest.raises(ValueError, match="step-00000005"):
        verify_checkpoint(path)


def test_all_checkpoints_damaged(kind: Any, folder: Path) -> None:
    for path in checkpoint_paths(folder / CHECKPOINTS):
        (path / "model.safetensors").unlink()
    with pytest.raises(UserError, match="all 3 checkpoints are damaged"):
        made(folder, kind, **SETTINGS).restore(pytest.fail)


def test_damaged_ones_are_not_averaged(kind: Any, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = made(folder, kind, **SETTINGS)
    trainer.restore(pytest.fail)
    flip(folder / CHECKPOINTS / "step-00000004" / "model.safetensors")
    trainer._show = True
    trainer.run()
    assert "the last checkpoints are not averaged: " in capsys.readouterr().err


def test_a_checkpoint_appears_with_the_update_after_its_parts_are_written(kind: Any, folder: Path) -> None:
    """Until then a killed run has the previous checkpoint."""
    checkpoints = folder / CHECKPOINTS
    shutil.copytree(checkpoints / "step-00000004", checkpoints / ".step-00000003")  # of a run that was killed
    stale = checkpoints / ".step-00000003" / "model-00002-of-00008.safetensors"
    stale.touch()
    trainer = made(folder, kind, **SETTINGS)
    trainer._began, trainer.progress.step = 0.0, 3
    trainer._save()
    trainer.saver.draft.sums()
    assert [path.name[-1] for path in checkpoint_paths(checkpoints)] == ["2", "4", "5"]
    assert trainer.saver.is_written()
    trainer.saver.finish()
    named = checkpoints / "step-00000003"
    assert verify_checkpoint(named)["step"] == 3 and not (named / stale.name).exists()

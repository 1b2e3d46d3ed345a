"""Optimizer states of a pretrained network."""

from pathlib import Path

import torch
from tiny_families import write_tiny

from headwise.config.training import TrainConfig
from headwise.core.optimizer import make_optimizer
from headwise.pytorch.tasks.pretrained import make_trainable
from headwise.runtime.checkpoint.read import read_folder


def test_saved_moments_match_their_weights(tmp_path: Path) -> None:
    """GPT-2's matrices are transposed in the file, moments are not."""
    write_tiny(tmp_path, "gpt2")
    found = []
    for written in (False, True):
        network = make_trainable(read_folder(str(tmp_path), dtype="float32").network, 0.0)
        optimizer = make_optimizer(network, TrainConfig())
        for step in range(3):
            generator = torch.Generator().manual_seed(step)
            for parameter in network.parameters():
                parameter.grad = torch.randn(parameter.shape, generator=generator)
            optimizer.step(0.01)
            if written:
                kept = {name: value.contiguous() for name, value in optimizer.tensors(network).items()}
                optimizer.restore(network, kept)
        found.append({name: parameter.detach() for name, parameter in network.named_parameters()})
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name], value, atol=0, rtol=0)

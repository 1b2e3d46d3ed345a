"""A small BERT to train, also with dropout that is deterministic."""

from pathlib import Path
from typing import Any

from tiny_families import write_tiny
from torch import Tensor, nn

from headwise.core.transformer import EncoderOnly
from headwise.pytorch.tasks.classification import FINE_TUNING
from headwise.pytorch.tasks.pretrained import make_trainable
from headwise.pytorch.training.extra_dropout import DropoutRates, DroppingKernel, add_dropout


class Halved(nn.Module):
    """A deterministic replacement for dropout."""

    p = 0.5

    def forward(self, x: Tensor) -> Tensor:
        return x * 0.5


def trainable_encoder(folder: Path, drops: bool = False) -> EncoderOnly:
    """In training mode, in float32; with `drops`, each attention weight is halved where dropout would be."""
    write_tiny(folder, "bert", {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 40})
    network: Any = make_trainable(FINE_TUNING.read(str(folder)).network, 0.0).train()
    if drops:
        add_dropout(network, DropoutRates(attention=0.1))
        for module in network.modules():
            if isinstance(module, DroppingKernel):
                module.dropout = Halved()  # pyright: ignore[reportAttributeAccessIssue]
    return network

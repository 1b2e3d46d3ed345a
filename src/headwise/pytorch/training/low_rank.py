"""Low-rank adapters on linear layers (LoRA, arXiv:2106.09685); the network's own weights are frozen.

`adapt` replaces linear layers for training; `merged` merges the adapters into the weights for inference. Adapter files
are in `pytorch/checkpoint/adapters.py`.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.core.dropout import Dropout


class LowRankLinear(nn.Linear):
    """x W^T + b + alpha / r dropout(x) A^T B^T (section 4.1); W and b are those of `layer`, frozen.

    Deviation, as in `peft`: A is initialised like the weights of a linear layer, not from a normal distribution. B
    starts as zeros, so that training starts from the original layer.

    Args:
        layer: the layer to replace.
        a: A, (r, in_features); shared by layers that a file stores as one matrix.
        alpha: the update is scaled by alpha / r.
        dropout: on the input of A.
        b: B, (out_features, r), if another adapter has the same.
    """

    def __init__(
        self, layer: nn.Linear, a: nn.Parameter, alpha: float, dropout: float, b: nn.Parameter | None = None
    ) -> None:
        super().__init__(layer.in_features, layer.out_features, layer.bias is not None, device="meta")
        self.weight, self.bias = layer.weight, layer.bias
        self.lora_A = a
        zeros = torch.zeros(layer.out_features, len(a), device=layer.weight.device)
        self.lora_B = nn.Parameter(zeros) if b is None else b
        self.scale = alpha / len(a)
        self.dropout = Dropout(dropout)

    def forward(self, input: Float[Tensor, "... d_in"]) -> Float[Tensor, "... d_out"]:
        """The layer's output plus the low-rank update."""
        added = F.linear(F.linear(self.dropout(input), self.lora_A), self.lora_B)
        return F.linear(input, self.weight, self.bias) + self.scale * added

    def merge(self) -> nn.Linear:
        """A linear layer with the update merged into its weight."""
        layer = nn.Linear(self.in_features, self.out_features, self.bias is not None, device="meta")
        with torch.no_grad():
            layer.weight = nn.Parameter(self.weight + self.scale * (self.lora_B @ self.lora_A), requires_grad=False)
        layer.bias = self.bias
        return layer.train(self.training)


def adapt(
    network: nn.Module, layers: Sequence[Sequence[str]], rank: int, alpha: float, dropout: float, whole: Collection[str]
) -> None:
    """Put adapters on `layers` and freeze all parameters except those named in `whole`.

    Linear layers that share their weight (ALBERT) get the same adapter.

    Args:
        layers: groups of names of linear layers; a group is one matrix in a file and shares A.
    """
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name in whole)
    for group in layers:
        first = network.get_submodule(group[0]).get_parameter("weight")
        a = nn.Parameter(first.new_empty(rank, first.size(1)))
        nn.init.kaiming_uniform_(a, a=math.sqrt(5))
        for name in group:
            layer = linear(network, name)
            adapted = LowRankLinear(layer, a, alpha, dropout)
            for same, other in list(network.named_modules()):
                if isinstance(other, nn.Linear) and other.weight is layer.weight and other is not layer:
                    _replace_layer(network, same, LowRankLinear(other, a, alpha, dropout, adapted.lora_B))
            _replace_layer(network, name, adapted)


@contextmanager
def merged(network: nn.Module) -> Iterator[None]:
    """Inside, adapters are merged into plain linear layers."""
    adapted = [(name, module) for name, module in network.named_modules() if isinstance(module, LowRankLinear)]
    for name, module in adapted:
        _replace_layer(network, name, module.merge())
    try:
        yield
    finally:
        for name, module in adapted:
            _replace_layer(network, name, module.train(linear(network, name).training))


def linear(network: nn.Module, name: str) -> nn.Linear:
    """The linear layer of that name."""
    layer = network.get_submodule(name)
    assert isinstance(layer, nn.Linear)
    return layer


def _replace_layer(network: nn.Module, name: str, layer: nn.Module) -> None:
    parent, _, leaf = name.rpartition(".")
    setattr(network.get_submodule(parent), leaf, layer)

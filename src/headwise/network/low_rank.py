"""Adapters of low rank on linear layers (LoRA, arXiv:2106.09685): a network learns while its own weights stay.

They are put in the place of layers of a network that is trained, and taken away where it is only used (`merged`): what
they add is a matrix, too. Not here: which layers, and files (`checkpoint/adapters.py`).
"""

import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.network.dropout import Dropout


class LowRankLinear(nn.Linear):
    """x W^T + b + alpha / r dropout(x) A^T B^T (section 4.1); W and b are those of `layer` and stay as they are.

    Deviation, as in `peft`: A is drawn as the weights of a linear layer are, not from a normal distribution. B begins
    as zeros, so that training begins with what the layer computes.

    Args:
        layer: the layer whose place this takes.
        a: A, (r, in_features), which layers that a file holds as one matrix share.
        alpha: what is added counts alpha / r times.
        dropout: of what A reads.
    """

    def __init__(self, layer: nn.Linear, a: nn.Parameter, alpha: float, dropout: float) -> None:
        super().__init__(layer.in_features, layer.out_features, layer.bias is not None, device="meta")
        self.weight, self.bias = layer.weight, layer.bias
        self.lora_A = a
        self.lora_B = nn.Parameter(torch.zeros(layer.out_features, len(a), device=layer.weight.device))
        self.scale = alpha / len(a)
        self.dropout = Dropout(dropout)

    def forward(self, input: Float[Tensor, "... d_in"]) -> Float[Tensor, "... d_out"]:
        """As the layer's, and what was learnt on top."""
        added = F.linear(F.linear(self.dropout(input), self.lora_A), self.lora_B)
        return F.linear(input, self.weight, self.bias) + self.scale * added

    def whole(self) -> nn.Linear:
        """The layer that computes the same by one matrix."""
        layer = nn.Linear(self.in_features, self.out_features, self.bias is not None, device="meta")
        with torch.no_grad():
            layer.weight = nn.Parameter(self.weight + self.scale * (self.lora_B @ self.lora_A), requires_grad=False)
        layer.bias = self.bias
        return layer.train(self.training)


def adapt(
    network: nn.Module, layers: Sequence[Sequence[str]], rank: int, alpha: float, dropout: float, whole: Collection[str]
) -> None:
    """Put adapters on `layers`, and let nothing else be trained but the parameters named in `whole`.

    Args:
        layers: names of linear layers; those of a group are one matrix in a file, and share what reads.
    """
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name in whole)
    for group in layers:
        first = network.get_submodule(group[0]).get_parameter("weight")
        a = nn.Parameter(first.new_empty(rank, first.size(1)))
        nn.init.kaiming_uniform_(a, a=math.sqrt(5))
        for name in group:
            _put(network, name, LowRankLinear(linear(network, name), a, alpha, dropout))


@contextmanager
def merged(network: nn.Module) -> Iterator[None]:
    """Inside, every layer is one matrix again, for whoever computes in another form."""
    adapted = [(name, module) for name, module in network.named_modules() if isinstance(module, LowRankLinear)]
    for name, module in adapted:
        _put(network, name, module.whole())
    try:
        yield
    finally:
        for name, module in adapted:
            _put(network, name, module.train(linear(network, name).training))


def linear(network: nn.Module, name: str) -> nn.Linear:
    """The linear layer of that name."""
    layer = network.get_submodule(name)
    assert isinstance(layer, nn.Linear)
    return layer


def _put(network: nn.Module, name: str, layer: nn.Module) -> None:
    parent, _, leaf = name.rpartition(".")
    setattr(network.get_submodule(parent), leaf, layer)

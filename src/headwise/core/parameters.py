"""Parameters by name, as in `model.safetensors`. The names are a file format."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from headwise.errors import UserError


def parameters_of(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter once, shared ones under the first of their names; the tensors are the model's own."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def load_parameters(model: nn.Module, tensors: Mapping[str, Tensor], origin: str) -> None:
    """Copy `tensors` into `model`; on any mismatch, one `UserError` lists all of them and nothing is copied."""
    own = parameters_of(model)
    problems = [f"missing {name}" for name in own if name not in tensors]
    problems += [f"unexpected {name}" for name in tensors if name not in own]
    problems += [
        f"{name} is {list(tensors[name].shape)}, should be {list(value.shape)}"
        for name, value in own.items()
        if name in tensors and tensors[name].shape != value.shape
    ]
    if problems:
        more = f"; and {len(problems) - 20} more" if len(problems) > 20 else ""
        raise UserError(f"{origin} does not fit its configuration: {'; '.join(problems[:20])}{more}")
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(tensors[name])


def replace_parameter(network: nn.Module, name: str, tensor: Tensor) -> None:
    """Replace the parameter called `name` by `tensor`, without a copy."""
    parent, _, leaf = name.rpartition(".")
    setattr(network.get_submodule(parent), leaf, nn.Parameter(tensor, requires_grad=False))


def share_parameters(source: nn.Module, other: nn.Module) -> None:
    """Let `other`, a module of the same structure, have the parameters of `source`."""
    for name, parameter in source.named_parameters(remove_duplicate=False):
        parent, _, leaf = name.rpartition(".")
        setattr(other.get_submodule(parent), leaf, parameter)


def count_parameters(model: nn.Module) -> int:
    """Number of trained values, shared ones counted once."""
    return sum(parameter.numel() for parameter in model.parameters())

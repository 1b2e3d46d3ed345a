"""Networks whose parameters come from a file: built without drawing or keeping any, then given those of the file."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headwise.network.axes import NetworkConfig
from headwise.network.build import assembled, tie_head
from headwise.network.parts import FamilyNetwork


def build_unfilled(c: NetworkConfig) -> FamilyNetwork:
    """As `build.build`, with parameters that take no memory and hold nothing, to be replaced; fixed tables are made."""
    with unfilled():
        network = assembled(c)
        tie_head(network, c)
    return network.eval()


@contextmanager
def unfilled() -> Iterator[None]:
    """Inside, parameters that are made take no memory and hold nothing, to be replaced."""
    with _NothingDrawn(), torch.device("meta"):
        yield


class _NothingDrawn(TorchFunctionMode):
    """Skips `torch.nn.init`: on parameters without memory it does nothing, but loads torch's compiler to do so."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if getattr(function, "__module__", "") == "torch.nn.init":
            return args[0] if args else named["tensor"]
        return function(*args, **named)


def replace_parameter(network: nn.Module, name: str, tensor: Tensor) -> None:
    """Let the parameter called `name` be `tensor`, without a copy."""
    parent, _, leaf = name.rpartition(".")
    setattr(network.get_submodule(parent), leaf, nn.Parameter(tensor, requires_grad=False))

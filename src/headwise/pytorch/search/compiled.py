"""Packs an encoder-decoder or a decoder alone of torch for the compiled library, which runs the search.

Its shape follows from its config, as in `runtime.checkpoint.compiled`. Whether to use the library is decided in
`inference.prepare_for_inference`.
"""

from typing import Any

import torch
from torch import nn

from headwise.pytorch.search.changes import change_of
from headwise.runtime.checkpoint.compiled import compiled, unsupported_setting
from headwise.runtime.native.library import library
from headwise.runtime.native.network import CompiledNetwork


def pack_network(network: Any, compute: str) -> CompiledNetwork:
    """A packed copy of the parameters of a supported network, in one of `runtime.native.linear.NUMBERS`.

    Parameters that were loaded in bfloat16 stay in bfloat16 for `compute` = "float32".
    """
    assert not (lacks := unsupported_module(network)), lacks
    parameters = dict(network.named_parameters(remove_duplicate=False))
    if compute == "float32" and next(iter(parameters.values())).dtype == torch.bfloat16:
        compute = "bfloat16"
    return compiled(network.config, {name: one.detach().float().numpy() for name, one in parameters.items()}, compute)


def native_available(network: nn.Module) -> bool:
    """Whether the library is loaded and supports this network."""
    return library() is not None and not unsupported_module(network)


def unsupported_module(network: Any) -> str:
    """The first change, setting or parameter that the library does not support; "" if there is none."""
    if found := change_of(network) or unsupported_setting(network.config):
        return found
    others = (
        f"{name} of {parameter.dtype}"
        for name, parameter in network.named_parameters()
        if parameter.dtype not in (torch.float32, torch.bfloat16)
    )
    return next(others, "")

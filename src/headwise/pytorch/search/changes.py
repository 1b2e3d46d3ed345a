"""Detects changes to a network other than values of parameters: hooks, replaced modules, other settings.

`core.build` made the network from its config. The compiled library computes what the config says, so decoding compares
the network here with what `build` makes.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from headwise.config.network import NetworkConfig
from headwise.core.build import build_empty

HOOKS = ("_forward_hooks", "_forward_pre_hooks")
# Not compared: attributes of every module, the config, and the rate of dropout, which decoding leaves out.
NOT_COMPARED = {*vars(nn.Module()), "config", "p"}
INTERVENED = "intervened"  # attribute of a network inside `headwise.pytorch.inspect.interventions.intervene`
NONE_OPEN: frozenset[str] = frozenset()
INTERVENTION = "an intervention"


def hooked(network: nn.Module) -> str:
    """The first module with a hook or a replaced `forward`, for a message; "" if there is none."""
    if is_intervened(network):
        return INTERVENTION
    if any(getattr(torch_module, f"_global{name}") for name in HOOKS):
        return "a hook on every module"
    for path, module in network.named_modules():
        if any(getattr(module, name) for name in HOOKS):
            return f"a hook on {path or 'the network'}"
        if "forward" in vars(module):
            return f"another forward of {path or 'the network'}"
    return ""


def is_intervened(network: nn.Module) -> bool:
    """Whether the network is changed on purpose, by `headwise.pytorch.inspect.interventions.intervene`."""
    return INTERVENED in vars(network)


def interventions_of(network: nn.Module) -> frozenset[str]:
    """The arguments of the open interventions; a set of its own for each."""
    return vars(network).get(INTERVENED, NONE_OPEN)


def change_of(network: Any) -> str:
    """The first difference from what `core.build` makes of the network's config, for a message; "" if there is none.

    Values of parameters and buffers, and which parameters are shared, do not count.
    """
    if hook := hooked(network):
        return hook
    if not isinstance(config := vars(network).get("config"), NetworkConfig):
        return f"a {type(network).__name__} that `core.build` did not make"
    built, own = _built(config), dict(_attributes(network))
    for path, name in {**built, **own}:
        key = path, name
        if not (key in built and key in own and _same(built[key], own[key])):
            where = path or "the network"
            return f"another {name} of {where}" if name else f"another module {where}"
    return ""


@lru_cache(maxsize=8)
def _built(config: NetworkConfig) -> dict[tuple[str, str], Any]:
    return dict(_attributes(build_empty(config)))


def _attributes(network: nn.Module) -> Iterator[tuple[tuple[str, str], Any]]:
    """The type of every module by its path, and its attributes and the shapes of its parameters by path and name."""
    for path, module in network.named_modules(remove_duplicate=False):
        yield (path, ""), type(module)
        for name, parameter in module._parameters.items():
            yield (path, name), None if parameter is None else parameter.shape
        for name, value in vars(module).items():
            if name not in NOT_COMPARED:
                yield from (((path, inner), setting) for inner, setting in _settings(name, value))


def _settings(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """An attribute; of an attention kernel and the like its type and its attributes."""
    if not type(value).__module__.startswith("headwise."):
        yield name, value
        return
    yield name, type(value)
    for inner, setting in vars(value).items():
        yield from _settings(f"{name}.{inner}", setting)


def _same(one: Any, other: Any) -> bool:
    if one is other or type(one) is not type(other):
        return one is other
    return torch.equal(one, other) if isinstance(one, Tensor) else bool(one == other)

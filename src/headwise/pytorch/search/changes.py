"""Detects changes to a network other than its parameters: hooks, replaced modules, other settings.

The compiled library knows only the parameters, so decoding checks here whether anything else has changed.
"""

from collections.abc import Iterator
from types import FunctionType
from typing import Any

from torch import nn
from torch.nn.modules import module as torch_module

HOOKS = ("_forward_hooks", "_forward_pre_hooks")
INTERNAL = vars(nn.Module()).keys()  # attributes of every module; decoding sets `training` itself
INTERVENED = "intervened"  # attribute of a network inside `headwise.pytorch.inspect.interventions.intervene`
NONE_OPEN: frozenset[str] = frozenset()
INTERVENTION = "an intervention"
BY_VALUE = (bool, int, float, str, type(None))  # types compared by value; other objects by identity


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


class ModuleSnapshot:
    """The modules and attributes of a network at one moment, without its parameters."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._before = dict(_attributes(network))  # keeps every object alive, so that its id is not reused

    def change(self) -> str:
        """The first change since the snapshot, for a message; "" if there is none, or if it was undone."""
        if hook := hooked(self._network):
            return hook
        now = dict(_attributes(self._network))
        for path, name in {**self._before, **now}:
            key = path, name
            if not (key in self._before and key in now and _same(self._before[key], now[key])):
                where = path or "the network"
                return f"another {name} of {where}" if name else f"another module {where}"
        return ""


def _attributes(network: nn.Module) -> Iterator[tuple[tuple[str, str], Any]]:
    """All modules by their paths, and their attributes by path and name, including those of attention kernels."""
    for path, module in network.named_modules():
        yield (path, ""), module
        for name, value in vars(module).items():
            if name in INTERNAL:
                continue
            yield (path, name), value
            if hasattr(value, "__dict__") and not isinstance(value, FunctionType | type):
                yield from (((path, f"{name}.{inner}"), setting) for inner, setting in vars(value).items())


def _same(before: Any, now: Any) -> bool:
    return before is now or (isinstance(now, BY_VALUE) and type(before) is type(now) and before == now)

"""Axes in a file: as plain data, and checked when they come back from JSON."""

import math
from collections.abc import Mapping
from dataclasses import MISSING, fields
from types import UnionType
from typing import Any, get_args, get_origin

from headwise.errors import UserError, unknown
from headwise.network.axes import NetworkConfig, RotaryConfig, StackConfig

LISTS = ("windows", "heads", "cross_heads")  # fields of a stack that JSON has as lists


def meaningful_axes(config: NetworkConfig) -> dict[str, Any]:
    """`config.as_dict()` without what the network does not have: what is off, zero or empty unless a family sets it."""
    return _had(NetworkConfig, config.as_dict())


def _had(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    absent = (None, False, 0, -1, "", (), (0, 0))  # where they are the default
    default = {f.name: f.default for f in fields(kind)}
    kept = {name: value for name, value in values.items() if value != default[name] or value not in absent}
    nested = {"encoder": StackConfig, "decoder": StackConfig, "rotary": RotaryConfig}
    return {name: _had(nested[name], value) if name in nested else value for name, value in kept.items()}


def network_config(values: Mapping[str, Any], origin: str) -> NetworkConfig:
    """The configuration of a dictionary `as_dict` made and JSON carried; `origin` is named in errors."""
    values = _checked(NetworkConfig, values, origin)
    for side in ("encoder", "decoder"):
        if values.get(side) is not None:
            values[side] = _stack_config(values[side], f"{origin}: {side}")
    values["image_size"] = tuple(values.get("image_size", (0, 0)))
    return _made(NetworkConfig, values, origin)


def _stack_config(values: Mapping[str, Any], origin: str) -> StackConfig:
    values = _checked(StackConfig, values, origin)
    if values.get("rotary") is not None:
        rotary = f"{origin}.rotary"
        values["rotary"] = _made(RotaryConfig, _checked(RotaryConfig, values["rotary"], rotary), rotary)
    return _made(StackConfig, {**values, **{name: tuple(values.get(name, ())) for name in LISTS}}, origin)


def _checked(kind: type, values: Any, origin: str) -> dict[str, Any]:
    """`values` when they name fields of `kind` only, each with what it may hold."""
    if not isinstance(values, Mapping):
        raise UserError(f"{origin}: must be a table")
    types = {f.name: f.type for f in fields(kind)}
    for name, value in values.items():
        if name not in types:
            raise UserError(f"{origin}: {unknown('key', name, types)}")
        if not _fits(value, types[name]):
            wanted = getattr(types[name], "__name__", str(types[name]))
            raise UserError(f"{origin}: {name} = {str(value)[:60]!r}: must be of type {wanted}")
        if types[name] is int and value < 0 and name != "count_from":
            raise UserError(f"{origin}: {name} = {value}: must not be negative")
    return {name: float(value) if types[name] is float else value for name, value in values.items()}


def _fits(value: Any, kind: Any) -> bool:
    """Whether JSON gave what a field of that type holds; a table within is checked on its own."""
    if kind is float:
        return type(value) in (int, float) and -math.inf < value < math.inf
    if get_origin(kind) is tuple:
        of_any_length = Ellipsis in get_args(kind)
        right = isinstance(value, list | tuple) and (of_any_length or len(value) == len(get_args(kind)))
        return right and all(type(one) is int for one in value)
    if isinstance(kind, UnionType):
        return value is None or isinstance(value, Mapping)
    return type(value) is kind


def _made(kind: Any, values: Mapping[str, Any], origin: str) -> Any:
    """A `kind` of these values; `UserError` where one without a default is missing."""
    for f in fields(kind):
        if f.name not in values and f.default is MISSING:
            raise UserError(f"{origin}: has no '{f.name}'")
    return kind(**values)

"""The parts of a family: conversion of its configuration in both directions, and a table of names."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headwise.config.network import NetworkConfig


def _none(config: NetworkConfig) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True)
class Family:
    """One family of checkpoints in the Hugging Face layout."""

    config_from_hf: Callable[[Mapping[str, Any]], NetworkConfig]  # from config.json
    names: Mapping[str, str]  # see `table`
    more_names: Callable[[NetworkConfig], Mapping[str, str]] = _none  # names that depend on the configuration
    prefix: str = ""  # of keys in a file; missing in files without a head
    ignored: str = "$^"  # keys in a file to ignore: regular expression
    heads: Mapping[str, str] = field(default_factory=dict)  # class in `architectures`: head, if the family has several
    same: Mapping[str, str] = field(default_factory=dict)  # keys that may repeat another one
    config_to_hf: Callable[[NetworkConfig], dict[str, Any]] | None = None  # for export
    overflows: bool = False  # activations of some checkpoints exceed 65504, the largest float16

    def table(self, config: NetworkConfig) -> dict[str, str]:
        """All names of one network."""
        return {**self.names, **self.more_names(config)}

"""What a family consists of: functions between its configuration and our axes, and a table of names."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headwise.network.config import NetworkConfig


def _none(config: NetworkConfig) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True)
class Family:
    """One family of checkpoints in the Hugging Face layout."""

    config_from_hf: Callable[[Mapping[str, Any]], NetworkConfig]  # from the values of config.json
    names: Mapping[str, str]  # see `table`
    more_names: Callable[[NetworkConfig], Mapping[str, str]] = _none  # those that not all its networks have
    prefix: str = ""  # of the keys in a file; a file saved without a head lacks it
    ignored: str = "$^"  # keys in a file that mean nothing to the network: regular expression
    same: Mapping[str, str] = field(default_factory=dict)  # keys in a file that may repeat another one
    config_to_hf: Callable[[NetworkConfig], dict[str, Any]] | None = None  # the way back, where ours are exported so

    def table(self, config: NetworkConfig) -> dict[str, str]:
        """All names of one network."""
        return {**self.names, **self.more_names(config)}

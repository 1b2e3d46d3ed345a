"""How a network is judged while it trains, in two steps: processes share the first, and all take the second."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import nn

Outputs = dict[str, list[Any]]  # by name, an entry for each item validated on, in their order; values JSON can hold
Item = TypeVar("Item")


class ValidationDeferred(Exception):
    """A signal asked the run to end: the validation stops here, and the resumed run repeats it."""


@dataclass(frozen=True)
class Shard:
    """The items that one process validates on: every `size`-th from the `rank`-th on; by default all."""

    rank: int = 0
    size: int = 1

    def of(self, items: Iterable[Item]) -> Iterator[Item]:
        """Those of `items` that belong to this process."""
        return islice(items, self.rank, None, self.size)


@runtime_checkable
class Validation(Protocol):
    """Judges a network as it is now; jobs (`headwise.tasks.job.Job`) are such judges."""

    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        """What the network, in evaluation mode, makes of the items of `shard`.

        Each name has as many entries as `shard` has left of one of the sequences that were validated on.
        """
        ...

    def figures(self, outputs: Outputs) -> dict[str, float]:
        """ "loss" and other figures, of the outputs of all processes."""
        ...


def mean_over_shards(outputs: Outputs, name: str, targets: str) -> float:
    """The sum of a figure over the number of targets."""
    return sum(outputs[name]) / max(1, sum(outputs[targets]))

"""Validation during training: processes share the computation of outputs, and each computes the metrics of all."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from torch import nn

from headwise.config.tasks import LOWER_IS_BETTER

Outputs = dict[str, list[Any]]  # by name, one JSON value for each validated item, in order
Item = TypeVar("Item")


class ValidationDeferred(Exception):
    """The validation was interrupted by a signal; the resumed run repeats it."""


@dataclass(frozen=True)
class Shard:
    """The items that one process validates: every `size`-th, starting at `rank`; by default all."""

    rank: int = 0
    size: int = 1

    def of(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items of this process."""
        return islice(items, self.rank, None, self.size)


@runtime_checkable
class Validation(Protocol):
    """Evaluates a network; implemented by jobs (`headwise.pytorch.tasks.job.Job`)."""

    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        """The outputs of the network, in evaluation mode, for the items of `shard`."""
        ...

    def figures(self, outputs: Outputs) -> dict[str, float]:
        """ "loss" and other metrics, from the outputs of all processes."""
        ...


class ValidationSample(NamedTuple):
    """The output of the network for a validation text."""

    source: str
    output: str
    reference: str

    def __str__(self) -> str:
        return "\n".join(f"  {name + ':':<11}{_shortened(text)}" for name, text in self._asdict().items())


def _shortened(text: str, limit: int = 160) -> str:
    """
    >>> _shortened("A dog\\nruns.", 8)
    'A dog ru...'
    """
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[:limit]}..."


@runtime_checkable
class Sampling(Protocol):
    """A validation with a sample."""

    def sample(self, outputs: Outputs) -> ValidationSample | None:
        """The output for the first validation text, from the outputs of all processes; None if there is none."""
        ...


def mean_over_shards(outputs: Outputs, name: str, targets: str) -> float:
    """The sum of a metric divided by the number of targets."""
    return sum(outputs[name]) / max(1, sum(outputs[targets]))


def cost(figures: Mapping[str, float], name: str) -> float:
    """A metric as a cost: negative if higher is better.

    >>> cost({"loss": 2.0}, "loss"), cost({"accuracy": 0.5}, "accuracy")
    (2.0, -0.5)
    """
    return figures[name] if name in LOWER_IS_BETTER else -figures[name]

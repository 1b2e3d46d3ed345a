"""Batches of two materials in turns: one's own, and general ones against forgetting what was known of them."""

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

Batched = TypeVar("Batched")
OTHER = "mixed_"  # before the keys of the second stream's state


class MixedStream(Generic[Batched]):
    """Batches of `own` and of `other`, of the second `share` of all, evenly spread; an epoch is one of `own`.

    Which comes next follows from how many there were, so that a run that goes on meets the same. `key` says in a state
    which material the second is of.
    """

    def __init__(self, own: Any, other: Any, share: float, key: int, count: int = 0) -> None:
        self.own, self.other, self.share, self.key, self.count = own, other, share, key, count
        self.wait_seconds = 0.0

    def state(self) -> dict[str, int]:
        """Where both are."""
        other = {f"{OTHER}{name}": value for name, value in self.other.state().items()}
        return {**self.own.state(), **other, "mixed": self.count, "general": self.key}

    def __iter__(self) -> "MixedStream[Batched]":
        return self

    def __next__(self) -> Batched:
        before, self.count = self.count, self.count + 1
        chosen = self.other if int(self.count * self.share) > int(before * self.share) else self.own
        waited, batch = chosen.wait_seconds, next(chosen)
        self.wait_seconds += chosen.wait_seconds - waited
        return batch

    def close(self) -> None:
        """End both threads."""
        self.own.close()
        self.other.close()


def other_state(state: Mapping[str, int]) -> dict[str, int]:
    """The second stream's part of a state.

    >>> other_state({"epoch": 2, "mixed_epoch": 1, "mixed": 9})
    {'epoch': 1}
    """
    return {name.removeprefix(OTHER): value for name, value in state.items() if name.startswith(OTHER)}

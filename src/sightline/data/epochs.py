"""Batches epoch after epoch, planned by the epoch: for the streams of all tasks but a translator's."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from sightline.data.batching import AnyBatch, Cursor


def walk_epochs(
    plan: Callable[[int], list[Any]], load: Callable[[Any], AnyBatch], start: Cursor
) -> Iterator[tuple[Cursor, AnyBatch]]:
    """The batches that `load` makes of each part of `plan(epoch)`, such as some rows, from a cursor on."""
    epoch, position, _ = start
    for now in count(epoch):
        for done, rows in enumerate(plan(now)[position:], start=position + 1):
            yield (now, done, 0), load(rows)
        position = 0

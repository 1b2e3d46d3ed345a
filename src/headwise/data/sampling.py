"""A sample of a stream, spread evenly over it."""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import TypeVar

Item = TypeVar("Item")


def sample_evenly(items: Iterator[Item], total: int, n: int, seed: int = 0) -> Iterator[Item]:
    """`n` of `total` items in their order, one at random from each of n stretches of equal length; reads all items.

    >>> list(sample_evenly(iter(range(12)), total=12, n=4))
    [1, 4, 6, 10]
    """
    generator, position = Random(seed), 0
    for stretch in range(n):
        chosen = generator.randrange(stretch * total // n, (stretch + 1) * total // n)
        yield from islice(items, chosen - position, chosen - position + 1)
        position = chosen + 1
    deque(items, maxlen=0)

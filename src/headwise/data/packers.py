"""A corpus cut into pieces by several processes, chunk by chunk: the bytes are those of one, in its order.

What a chunk becomes is a function of the chunk alone (`prepared.pack`), so nothing depends on how many processes there
are or which is ready first. Lines go out and arrays come back; reading files and writing columns stay here.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from headwise.config.data import PairData
from headwise.data.pack import Packed, pack_pairs
from headwise.data.pair_tokenizer import PairTokenizer
from headwise.data.processes import in_order, processes
from headwise.data.rows import Pair

AHEAD = 3  # chunks of each process that are on their way, so that none waits and memory does not grow with the corpus
Result = tuple[list[Packed], Counter[str]]


@contextmanager
def packers(
    workers: int, tokenizer: PairTokenizer, limits: PairData | None
) -> Iterator[Callable[[Iterable[list[Pair]]], Iterator[Result]]]:
    """So many processes, as a function that has them `prepared.pack` chunk after chunk.

    Raises:
        UserError: one of them was ended from outside.
    """
    what = "a process that cuts the corpus into pieces"
    with processes(workers, what, _begin, tokenizer, limits) as submit:
        yield lambda chunks: in_order(chunks, lambda chunk: submit(_pack, chunk), lambda: AHEAD * workers)


_how: list[tuple[PairTokenizer, PairData | None]] = []  # of this process


def _begin(tokenizer: PairTokenizer, limits: PairData | None) -> None:
    """A process of the pool has one thread."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _how.append((tokenizer, limits))


def _pack(chunk: list[Pair]) -> list[Result]:
    return [pack_pairs(chunk, *_how[0])]

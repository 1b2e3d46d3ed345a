"""A corpus cut into pieces by several processes, chunk by chunk: the bytes are those of one, in its order.

What a chunk becomes is a function of the chunk alone (`prepared.pack`), so nothing depends on how many processes there
are or which is ready first. Lines go out and arrays come back; reading files and writing columns stay here. A program
that asks needs the guard `if __name__ == "__main__":`, for every process starts by importing it.
"""

import os
import signal
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context

from sightline.config import DataConfig
from sightline.data.corpus import Pair
from sightline.data.prepared import Packed, pack
from sightline.data.side import Side
from sightline.errors import UserError

AHEAD = 3  # chunks of each process that are on their way, so that none waits and memory does not grow with the corpus
Result = tuple[list[Packed], Counter[str]]


@contextmanager
def packers(
    workers: int, tokenizer: Side, limits: DataConfig | None
) -> Iterator[Callable[[Iterable[list[Pair]]], Iterator[Result]]]:
    """So many processes, as a function that has them `prepared.pack` chunk after chunk.

    Raises:
        UserError: one of them was ended from outside.
    """
    with ProcessPoolExecutor(workers, get_context("spawn"), _begin, (tokenizer, limits)) as pool:

        def packs(chunks: Iterable[list[Pair]]) -> Iterator[Result]:
            pending: deque[Future[Result]] = deque()
            for chunk in chunks:
                try:
                    pending.append(pool.submit(_pack, chunk))
                except OSError as error:  # a pipe of a pool that is about to say that it is broken
                    raise BrokenProcessPool from error
                if len(pending) == AHEAD * workers:
                    yield pending.popleft().result()
            yield from (future.result() for future in pending)

        try:
            yield packs
        except BrokenProcessPool:
            why = "a process that cuts the corpus into pieces was ended from outside, perhaps for lack of memory"
            raise UserError(f"{why}: use fewer of them (--workers 1)") from None
        finally:
            pool.shutdown(cancel_futures=True)


_how: list[tuple[Side, DataConfig | None]] = []  # of this process


def _begin(tokenizer: Side, limits: DataConfig | None) -> None:
    """A process of the pool has one thread, and leaves Ctrl-C to the one that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _how.append((tokenizer, limits))


def _pack(chunk: list[Pair]) -> Result:
    return pack(chunk, *_how[0])

"""Translation by several processes: each holds the model, takes chunks of lines and gives their translations back.

With torch on a CPU several processes of one thread each translate more than one process of several threads: most matrix
products of a decoding step are too small to be worth dividing (`benchmarks/`). The compiled library searches whole
batches side by side in threads and has no need of this. Order and text are those of one process.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import chain, islice
from pathlib import Path
from typing import Any

from sightline.data.processes import in_order, processes
from sightline.decode.translator import Translation
from sightline.device import usable_cores

CHUNK_LINES = 500  # handed to a process at once: enough to sort into batches of equal length, few enough to share out


def translate_in_processes(
    folders: str | Path | Sequence[str | Path],
    device: str,
    lines: Iterable[str],
    workers: int,
    prefix: str = "",
    overrides: Mapping[str, Any] | None = None,
    chunk_lines: int = CHUNK_LINES,
) -> Iterator[Translation]:
    """`translate_lines` of what `load` makes of `folders` by `workers` processes, which share the cores among them.

    At most two chunks a process are on their way at a time, so memory does not grow with the input. A program that
    calls this needs the guard `if __name__ == "__main__":`, for every process starts by importing it.

    Raises:
        UserError: what `translate` raises, or a process was killed.
    """
    threads = max(1, usable_cores() // workers)
    model = (str(folders),) if isinstance(folders, str | Path) else tuple(map(str, folders))
    stream = iter(lines)
    chunks = iter(lambda: list(islice(stream, chunk_lines)), [])
    with processes(workers, "a translating process", _prepare, threads) as submit:

        def translate(chunk: list[str]) -> Future[list[Translation]]:
            return submit(_translate, model, device, chunk, prefix, dict(overrides or {}))

        yield from in_order(chunks, translate, lambda: 2 * workers)


def worth_sharing(lines: Iterable[str]) -> tuple[int, Iterator[str]]:
    """How many processes pay: one for each core where there are lines enough; and all the lines."""
    stream = iter(lines)
    head = list(islice(stream, 2 * CHUNK_LINES))
    return usable_cores() if len(head) == 2 * CHUNK_LINES else 1, chain(head, stream)


_models: dict[tuple[tuple[str, ...], str], Any] = {}  # of this process


def _prepare(threads: int) -> None:
    """A process of the pool computes with so many threads."""
    os.environ["OMP_NUM_THREADS"] = str(threads)  # for the engine, and for torch if it is loaded later
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)


def _translate(
    folders: tuple[str, ...], device: str, lines: list[str], prefix: str, overrides: dict[str, Any]
) -> list[Translation]:
    from sightline.models.load import load

    if (folders, device) not in _models:
        _models[folders, device] = load(folders, device)
    return _models[folders, device].translate(lines, prefix, **overrides)

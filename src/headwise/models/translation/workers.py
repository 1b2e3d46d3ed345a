"""Translation by several processes: each holds the model, takes chunks of lines and gives their translations back.

With torch on a CPU several processes of one thread each translate more than one process of several threads: most matrix
products of a decoding step are too small to be worth dividing (`benchmarks/`). The compiled library searches whole
batches side by side in threads and has no need of this. Order and text are those of one process.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from headwise.device import usable_cores
from headwise.errors import UserError
from headwise.runtime.search.translator import Translation
from headwise.text.prepared.processes import ordered_results, worker_processes

TASK_LINES = 500  # handed to a process at once: enough to sort into batches of equal length, few enough to share out


def no_loading(*of: Any) -> Any:
    """Replaces `load` for a model that only this process has."""
    raise UserError("this model was not loaded by `headwise.load`, so that no other can be loaded for it")


@dataclass(frozen=True)
class Loading:
    """The arguments with which other processes load a model."""

    paths: tuple[str, ...]  # of one model, or of an ensemble
    device: str
    dtype: str = "auto"
    load: Callable[..., Any] = no_loading  # `models.load.load`

    def __call__(self) -> Any:
        """The model, loaded."""
        return self.load(self.paths[0] if len(self.paths) == 1 else list(self.paths), self.device, self.dtype)


def translate_in_processes(
    loading: Loading,
    lines: Iterable[str],
    workers: int,
    arguments: Mapping[str, Any] | None = None,
    task_lines: int = TASK_LINES,
) -> Iterator[Translation]:
    """`translate_lines` of a model by `workers` processes, which share the cores among them.

    `arguments` are those of its `translate`. At most two chunks a process are on their way at a time, so memory does
    not grow with the input. A program that calls this needs the guard `if __name__ == "__main__":`, for every process
    starts by importing it.

    Raises:
        UserError: what `translate` raises, or a process was killed.
    """
    threads = max(1, usable_cores() // workers)
    stream = iter(lines)
    chunks = iter(lambda: list(islice(stream, task_lines)), [])
    with worker_processes(workers, "a translating process", _prepare, threads) as submit:

        def translate(chunk: list[str]) -> Future[list[Translation]]:
            return submit(_translate, loading, chunk, dict(arguments or {}))

        yield from ordered_results(chunks, translate, lambda: 2 * workers)


def worth_sharing(lines: Iterable[str]) -> tuple[int, Iterator[str]]:
    """The number of useful processes, one for each core if there are enough lines; and all the lines."""
    stream = iter(lines)
    head = list(islice(stream, 2 * TASK_LINES))
    return usable_cores() if len(head) == 2 * TASK_LINES else 1, chain(head, stream)


_models: dict[Loading, Any] = {}  # of this process


def _prepare(threads: int) -> None:
    """Set the number of threads of a process of the pool."""
    os.environ["OMP_NUM_THREADS"] = str(threads)  # for the engine, and for torch if it is loaded later
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)


def _translate(loading: Loading, lines: list[str], arguments: dict[str, Any]) -> list[Translation]:
    if loading not in _models:
        _models[loading] = loading()
    return _models[loading].translate(lines, **arguments)

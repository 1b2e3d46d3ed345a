"""A process for each contender, of which one works at a time.

glibc's allocator settings, OpenMP's thread pool and a library's global switches belong to a process, so contenders that
share one would measure each other's settings. A worker waits on a pipe between its turns and costs nothing then.
All inherit the cores this process is pinned to.
"""

import multiprocessing
import os
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from machine import now

Make = Callable[..., Callable[..., Any]]  # runs in the new process; what it returns does the work


@dataclass(frozen=True)
class Reply:
    """What a worker answers."""

    value: Any
    seconds: float  # of the work alone, without the way through the pipe
    peak_bytes: int  # largest resident memory of the worker so far


class Worker:
    """`make(*arguments)` in a process of its own; calling the worker calls what `make` returned."""

    def __init__(self, make: Make, *arguments: Any, threads: int = 1, keep_memory: bool = False) -> None:
        """`threads` is what torch and OpenMP may use; `keep_memory` applies our allocator setting to the process."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        # The library reads this when it is loaded, which in the new process is before any of our code runs.
        before = os.environ.get("OMP_NUM_THREADS")
        os.environ["OMP_NUM_THREADS"] = str(threads)
        self._process = context.Process(
            target=_serve, args=(theirs, make, arguments, threads, keep_memory), daemon=True
        )
        self._process.start()
        os.environ.pop("OMP_NUM_THREADS") if before is None else os.environ.update(OMP_NUM_THREADS=before)
        theirs.close()

    def start(self, *arguments: Any) -> None:
        """Begin a piece of work; `finish` waits for it."""
        self._pipe.send(arguments)

    def finish(self) -> Reply:
        """The answer to what `start` began; `RuntimeError` with the worker's traceback if it failed."""
        try:
            reply = self._pipe.recv()
        except EOFError:
            self._process.join()
            raise RuntimeError(f"a contender's process ended with exit code {self._process.exitcode}") from None
        if isinstance(reply, str):
            raise RuntimeError(f"a contender failed:\n{reply}")
        return reply

    def __call__(self, *arguments: Any) -> Reply:
        self.start(*arguments)
        return self.finish()

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.join(timeout=10)
        if self._process.is_alive():
            self._process.kill()


class Team:
    """Several equal workers that share each piece of work: one process a core."""

    def __init__(self, size: int, make: Make, *arguments: Any, threads: int = 1, keep_memory: bool = False) -> None:
        self._workers = [Worker(make, *arguments, threads=threads, keep_memory=keep_memory) for _ in range(size)]

    def __call__(self, items: Sequence[Any], *arguments: Any) -> Reply:
        """The items dealt out in turn (sorted items give equal shares), their results in order.

        Memory is the sum over the workers.
        """
        size = len(self._workers)
        for i, worker in enumerate(self._workers):
            worker.start(items[i::size], *arguments)
        replies = [worker.finish() for worker in self._workers]
        value: list[Any] = [None] * len(items)
        for i, reply in enumerate(replies):
            value[i::size] = reply.value
        # They began within a millisecond of each other, so the slowest says how long it took.
        return Reply(value, max(reply.seconds for reply in replies), sum(reply.peak_bytes for reply in replies))

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.close()


def peak_memory() -> int:
    """Largest resident memory of this process so far, bytes; 0 where the system does not say.

    Not `getrusage`: there a new process starts with the peak of the one that started it.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def _serve(pipe: Connection, make: Make, arguments: Sequence[Any], threads: int, keep_memory: bool) -> None:
    try:
        import torch

        from headwise.training.allocator import keep_freed_memory

        torch.set_num_threads(threads)
        if keep_memory:
            assert keep_freed_memory(), "the allocator setting is not to be had here"
        work = make(*arguments)
        while True:
            request = pipe.recv()
            started = now()
            value = work(*request)
            pipe.send(Reply(value, now() - started, peak_memory()))
    except EOFError:
        return
    except BaseException:
        pipe.send(traceback.format_exc())

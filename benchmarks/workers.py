"""A process for each contender; only one of them works at a time.

glibc's allocator settings, OpenMP's thread pool and a library's global switches belong to a process, so contenders that
share one would affect each other. Between its turns a worker waits on a pipe, which costs nothing. All inherit the
cores of this process.
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

Make = Callable[..., Callable[..., Any]]  # runs in the new process and returns the work function


@dataclass(frozen=True)
class Reply:
    """A worker's reply."""

    value: Any
    seconds: float  # of the work, without the pipe
    peak_bytes: int  # largest resident memory of the worker so far


class Worker:
    """`make(*arguments)` in its own process; calling the worker calls the function that `make` returned."""

    def __init__(self, make: Make, *arguments: Any, threads: int = 1, keep_memory: bool = False) -> None:
        """`threads` is for torch and OpenMP; `keep_memory` applies our allocator setting."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        # OpenMP reads this when it is loaded, in the new process before any of our code runs.
        before = os.environ.get("OMP_NUM_THREADS")
        os.environ["OMP_NUM_THREADS"] = str(threads)
        self._process = context.Process(
            target=_serve, args=(theirs, make, arguments, threads, keep_memory), daemon=True
        )
        self._process.start()
        os.environ.pop("OMP_NUM_THREADS") if before is None else os.environ.update(OMP_NUM_THREADS=before)
        theirs.close()

    def start(self, *arguments: Any) -> None:
        """Start a job; `finish` waits for it."""
        self._pipe.send(arguments)

    def finish(self) -> Reply:
        """The reply to `start`; `RuntimeError` with the worker's traceback if it failed."""
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
    """Several equal workers that share each job: one process per core."""

    def __init__(self, size: int, make: Make, *arguments: Any, threads: int = 1, keep_memory: bool = False) -> None:
        self._workers = [Worker(make, *arguments, threads=threads, keep_memory=keep_memory) for _ in range(size)]

    def __call__(self, items: Sequence[Any], *arguments: Any) -> Reply:
        """Distribute the items round-robin (sorted items give equal shares); results are in order.

        Memory is the sum over the workers.
        """
        size = len(self._workers)
        for i, worker in enumerate(self._workers):
            worker.start(items[i::size], *arguments)
        replies = [worker.finish() for worker in self._workers]
        value: list[Any] = [None] * len(items)
        for i, reply in enumerate(replies):
            value[i::size] = reply.value
        # They started within a millisecond of each other, so the slowest determines the time.
        return Reply(value, max(reply.seconds for reply in replies), sum(reply.peak_bytes for reply in replies))

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.close()


def peak_memory() -> int:
    """Largest resident memory of this process so far, bytes; 0 if the system does not report it.

    Not `getrusage`, where a new process starts with the peak of its parent.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def _serve(pipe: Connection, make: Make, arguments: Sequence[Any], threads: int, keep_memory: bool) -> None:
    try:
        import torch

        from headwise.runtime.allocator import keep_freed_memory

        torch.set_num_threads(threads)
        if keep_memory:
            assert keep_freed_memory(), "the allocator setting is not available here"
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

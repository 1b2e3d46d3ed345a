"""Processes of a cluster that take work as those of a `ProcessPoolExecutor` do; one that dies is replaced.

Each has a processor or a GPU to itself. A thread here stands for each: it waits until the cluster has a place, then
hands over one piece of work after the other. Work whose process died goes to another one, some times. Ray's own
restarts are not used: they tie work to a process that may never find a place again.
"""

import os
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Any

from sightline.errors import UserError

ATTEMPTS = 3  # processes that may die of the same work, or before they have begun
LOOK_AROUND = 1.0  # seconds between two looks at how large the cluster is


@dataclass
class Errand:
    """One piece of work."""

    work: Callable[..., Any]
    arguments: tuple[Any, ...]
    future: Future[Any] = field(default_factory=Future)
    attempts: int = 0


class Process:
    """What Ray starts, elsewhere perhaps."""

    def ready(self) -> int:
        """The number of the process."""
        return os.getpid()

    def run(self, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Do it."""
        return work(*arguments)


class Actors(Executor):
    """As many processes as the cluster has places for, also when it grows; or `most`, which makes it grow."""

    def __init__(self, ray: Any, gpu: bool, most: int = 0) -> None:
        self._ray, self._what, self._most = ray, "GPU" if gpu else "CPU", most
        self._kind = ray.remote(Process).options(num_cpus=0 if gpu else 1, num_gpus=int(gpu), max_concurrency=1)
        self._jobs: deque[Errand] = deque()
        self._changed, self._closed = Condition(), False
        self._actors: dict[int, Any] = {}  # by the numbers of the threads
        self._failed_starts, self._looked = 0, -LOOK_AROUND

    @property
    def size(self) -> int:
        """How many there are, those that wait for a place among them."""
        return len(self._actors)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """As of `Executor`; `fn` must be a function of a module that the cluster's machines have."""
        assert not kwargs
        self._grow()
        job = Errand(fn, args)
        with self._changed:
            self._jobs.append(job)
            self._changed.notify()
        return job.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End them, whatever they do."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for actor in self._actors.values():
            if actor:
                self._ray.kill(actor)

    def _grow(self) -> None:
        if (now := time.monotonic()) - self._looked < LOOK_AROUND:
            return
        self._looked = now
        places = self._most or int(self._ray.cluster_resources().get(self._what, 0)) or 1
        for number in range(len(self._actors), places):
            self._actors[number] = None
            Thread(target=self._stand_for, args=[number], daemon=True).start()

    def _stand_for(self, number: int) -> None:
        """One process after the other, each as long as it lives."""
        while not self._closed:
            actor = self._actors[number] = self._kind.remote()
            with suppress(self._ray.exceptions.RayError):
                if self._has_started(actor):
                    self._employ(actor)
            self._ray.kill(actor)

    def _has_started(self, actor: Any) -> bool:
        try:
            self._ray.get(actor.ready.remote())
        except self._ray.exceptions.RayError as error:
            self._failed_starts += 1
            if self._failed_starts >= ATTEMPTS:
                self._give_up(f"its processes do not start: {str(error).splitlines()[0]}")
            return False
        self._failed_starts = 0
        return True

    def _employ(self, actor: Any) -> None:
        while job := self._next():
            try:
                found = self._ray.get(actor.run.remote(job.work, job.arguments))
            except self._ray.exceptions.RayTaskError as error:
                job.future.set_exception(error.cause)
            except self._ray.exceptions.RayError as error:
                self._again(job, error)
                raise
            else:
                job.future.set_result(found)

    def _next(self) -> Errand | None:
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closed)
            return None if self._closed else self._jobs.popleft()

    def _again(self, job: Errand, error: Exception) -> None:
        job.attempts += 1
        if job.attempts >= ATTEMPTS:
            why = f"{ATTEMPTS} processes have died of the same lines, perhaps for lack of memory"
            job.future.set_exception(UserError(f"--ray: {why}: {str(error).splitlines()[0]}"))
            return
        with self._changed:
            self._jobs.appendleft(job)  # somebody waits for it first
            self._changed.notify()

    def _give_up(self, why: str) -> None:
        with self._changed:
            while self._jobs:
                self._jobs.popleft().future.set_exception(UserError(f"--ray: {why}"))

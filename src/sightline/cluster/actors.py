"""Processes of a cluster that take work as those of a `ProcessPoolExecutor` do; one that dies is replaced.

Each has a processor or a GPU to itself. A thread here stands for each: it waits until the cluster has a place, then
hands over one piece of work after the other. Work whose process died goes to another one, some times. Ray's own
restarts are not used: they tie work to a process that may never find a place again. A process that cannot do such work
where it is (`MachineUnusable`) gets no more of it, and keeps its place, so that none is started there again.
"""

import sys
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Condition, Event, Thread
from typing import Any

from sightline.cluster.connection import machine_name
from sightline.errors import UserError

MAX_ATTEMPTS = 3  # processes that may die of the same work, or before they have begun
POLL_SECONDS = 1.0  # seconds between two looks at how large the cluster is


@dataclass
class ClusterTask:
    """One piece of work."""

    work: Callable[..., Any]
    arguments: tuple[Any, ...]
    future: Future[Any] = field(default_factory=Future)
    attempts: int = 0


class MachineUnusable(UserError):
    """Raised by work that cannot be done on this machine, but perhaps on another one."""


class ClusterWorker:
    """What Ray starts, elsewhere perhaps."""

    def ready(self) -> str:
        """The machine that it runs on, by Ray's number for it."""
        import ray

        return ray.get_runtime_context().get_node_id()

    def run(self, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Do it."""
        return work(*arguments)


class ClusterExecutor(Executor):
    """As many processes as the cluster has places for, also when it grows; or `most`, which makes it grow."""

    def __init__(self, ray: Any, gpu: bool, most: int = 0) -> None:
        self._ray, self._what, self._most = ray, "GPU" if gpu else "CPU", most
        self._kind = ray.remote(ClusterWorker).options(num_cpus=0 if gpu else 1, num_gpus=int(gpu), max_concurrency=1)
        self._jobs: deque[ClusterTask] = deque()
        self._changed, self._closed = Condition(), Event()
        self._actors: dict[int, Any] = {}  # by the numbers of the threads
        self._failed_starts, self._looked = 0, -POLL_SECONDS
        self._unusable: dict[str, str] = {}  # machines, by Ray's numbers, and why
        self._idle = 0  # threads whose process is on one of these
        self._given_up = ""  # why no work is taken any more

    @property
    def size(self) -> int:
        """How many there are, those that wait for a place among them, without those that get no work."""
        return len(self._actors) - self._idle

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """As of `Executor`; `fn` must be a function of a module that the cluster's machines have."""
        assert not kwargs
        if time.monotonic() - self._looked >= POLL_SECONDS:
            self._grow()
        job = ClusterTask(fn, args)
        with self._changed:
            self._jobs.append(job)
            self._changed.notify()
        if self._given_up:
            self._give_up(self._given_up)
        return job.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End them, whatever they do."""
        with self._changed:
            self._closed.set()
            self._changed.notify_all()
        for actor in self._actors.values():
            if actor:
                self._ray.kill(actor)

    def _grow(self) -> None:
        self._looked = time.monotonic()
        places = self._places()
        with self._changed:
            new = range(len(self._actors), self._most + self._idle if self._most else places)
            self._actors.update(dict.fromkeys(new))
        for number in new:
            Thread(target=self._stand_for, args=[number], daemon=True).start()

    def _places(self) -> int:
        return int(self._ray.cluster_resources().get(self._what, 0)) or 1

    def _stand_for(self, number: int) -> None:
        """One process after the other, each as long as it lives."""
        while not self._closed.is_set():
            actor = self._actors[number] = self._kind.remote()
            with suppress(self._ray.exceptions.RayError):
                if machine := self._started(actor):
                    self._employ(actor, machine)
            self._ray.kill(actor)

    def _started(self, actor: Any) -> str:
        """The machine of a process that has started; empty if it has not."""
        try:
            machine = self._ray.get(actor.ready.remote())
        except self._ray.exceptions.RayError as error:
            self._failed_starts += 1
            if self._failed_starts >= MAX_ATTEMPTS:
                self._give_up(f"its processes do not start: {str(error).splitlines()[0]}")
            return ""
        self._failed_starts = 0
        if machine not in self._unusable:
            self._given_up = ""
        return machine

    def _employ(self, actor: Any, machine: str) -> None:
        while machine not in self._unusable and (job := self._next()):
            try:
                found = self._ray.get(actor.run.remote(job.work, job.arguments))
            except self._ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, MachineUnusable):
                    self._leave_out(machine, error.cause)
                    self._return(job)
                else:
                    job.future.set_exception(error.cause)
            except self._ray.exceptions.RayError as error:
                self._again(job, error)
                raise
            else:
                job.future.set_result(found)
        if not self._closed.is_set():
            self._keep_place(actor)

    def _keep_place(self, actor: Any) -> None:
        """Do nothing on a machine that is left out, as long as the process lives."""
        places = self._places()
        with self._changed:
            self._idle += 1
            if self._idle >= places:
                self._give_up("; ".join(f"{name}: {why}" for name, why in self._left_out()))
        try:
            self._grow()
            while not self._closed.wait(POLL_SECONDS):
                self._ray.get(actor.ready.remote())
        finally:
            with self._changed:
                self._idle -= 1

    def _leave_out(self, machine: str, why: Exception) -> None:
        with self._changed:
            if machine in self._unusable:
                return
            self._unusable[machine] = str(why)
        name, why_not = self._left_out()[-1]
        print(f"sightline: --ray: {name} is left out: {why_not}", file=sys.stderr)

    def _left_out(self) -> list[tuple[str, str]]:
        names = {node["NodeID"]: machine_name(node) for node in self._ray.nodes()}
        return [(names.get(machine, machine), why) for machine, why in self._unusable.items()]

    def _next(self) -> ClusterTask | None:
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closed.is_set())
            return None if self._closed.is_set() else self._jobs.popleft()

    def _again(self, job: ClusterTask, error: Exception) -> None:
        job.attempts += 1
        if job.attempts >= MAX_ATTEMPTS:
            why = f"{MAX_ATTEMPTS} processes have died of the same lines, perhaps for lack of memory"
            job.future.set_exception(UserError(f"--ray: {why}: {str(error).splitlines()[0]}"))
            return
        self._return(job)

    def _return(self, job: ClusterTask) -> None:
        with self._changed:
            self._jobs.appendleft(job)  # somebody waits for it first
            self._changed.notify()

    def _give_up(self, why: str) -> None:
        with self._changed:
            self._given_up = why
            while self._jobs:
                self._jobs.popleft().future.set_exception(UserError(f"--ray: {why}"))

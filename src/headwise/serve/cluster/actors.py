"""Worker processes on a cluster, with the interface of `ProcessPoolExecutor`; failed workers are replaced.

Each worker has a CPU or GPU of its own, and a thread here: it waits until the cluster has room, and then submits task
after task. The tasks of a failed worker are retried on another one, a few times. Ray's own restarts are not used: they
bind a task to a worker that may never get room again. A worker on a machine that cannot run such tasks
(`MachineUnusable`) gets no more of them, but keeps its place, so that no other worker starts there.
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

from headwise.errors import UserError, first_line
from headwise.serve.cluster.connection import machine_name

MAX_ATTEMPTS = 3  # of a task whose workers die, and of starting a worker
POLL_SECONDS = 1.0  # seconds between checks of the cluster's size


@dataclass
class ClusterTask:
    """A submitted task."""

    work: Callable[..., Any]
    arguments: tuple[Any, ...]
    future: Future[Any] = field(default_factory=Future)
    attempts: int = 0


class MachineUnusable(UserError):
    """Raised by tasks that cannot run on this machine, but perhaps on another one."""


class ClusterWorker:
    """The actor that Ray starts."""

    def ready(self) -> str:
        """The node id of its machine."""
        import ray

        return ray.get_runtime_context().get_node_id()

    def run(self, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Run a task."""
        return work(*arguments)


class ClusterExecutor(Executor):
    """An executor with as many workers as a growing cluster has room for; or `most`, which makes it grow."""

    def __init__(self, ray: Any, gpu: bool, most: int = 0) -> None:
        self._ray, self._what, self._most = ray, "GPU" if gpu else "CPU", most
        self._kind = ray.remote(ClusterWorker).options(num_cpus=0 if gpu else 1, num_gpus=int(gpu), max_concurrency=1)
        self._tasks: deque[ClusterTask] = deque()
        self._changed, self._closed = Condition(), Event()
        self._actors: dict[int, Any] = {}  # by thread number
        self._failed_starts, self._looked = 0, -POLL_SECONDS
        self._unusable: dict[str, str] = {}  # reasons by node id
        self._idle = 0  # workers on unusable machines
        self._given_up = ""  # why no more tasks are accepted

    @property
    def size(self) -> int:
        """The number of workers, including those that wait for room, excluding those without tasks."""
        return len(self._actors) - self._idle

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Like `Executor.submit`; `fn` must be a function of a module that all machines have."""
        assert not kwargs
        if time.monotonic() - self._looked >= POLL_SECONDS:
            self._grow()
        task = ClusterTask(fn, args)
        with self._changed:
            self._tasks.append(task)
            self._changed.notify()
        if self._given_up:
            self._give_up(self._given_up)
        return task.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop all workers, without waiting for their tasks."""
        with self._changed:
            self._closed.set()
            self._changed.notify_all()
            actors = list(self._actors.values())
        for actor in actors:
            if actor:
                self._ray.kill(actor)

    def _grow(self) -> None:
        self._looked = time.monotonic()
        places = self._n_places()
        with self._changed:
            if self._closed.is_set():
                return  # `shutdown` stops only the workers that it knows
            new = range(len(self._actors), self._most + self._idle if self._most else places)
            self._actors.update(dict.fromkeys(new))
        for number in new:
            Thread(target=self._supervise, args=[number], daemon=True).start()

    def _n_places(self) -> int:
        return int(self._ray.cluster_resources().get(self._what, 0)) or 1

    def _supervise(self, number: int) -> None:
        """Start one worker after another, each for as long as it lives."""
        while not self._closed.is_set():
            actor = self._actors[number] = self._kind.remote()
            with suppress(self._ray.exceptions.RayError):
                if machine := self._started(actor):
                    self._run_tasks(actor, machine)
            self._ray.kill(actor)

    def _started(self, actor: Any) -> str:
        """The machine of a started worker; "" if it failed."""
        try:
            machine = self._ray.get(actor.ready.remote())
        except self._ray.exceptions.RayError as error:
            self._failed_starts += 1
            if self._failed_starts >= MAX_ATTEMPTS:
                self._give_up(f"its workers do not start: {first_line(error)}")
            return ""
        self._failed_starts = 0
        if machine not in self._unusable:
            self._given_up = ""
        return machine

    def _run_tasks(self, actor: Any, machine: str) -> None:
        while machine not in self._unusable and (task := self._next()):
            try:
                result = self._ray.get(actor.run.remote(task.work, task.arguments))
            except self._ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, MachineUnusable):
                    self._exclude(machine, error.cause)
                    self._return(task)
                else:
                    task.future.set_exception(error.cause)
            except self._ray.exceptions.RayError as error:
                self._retry(task, error)
                raise
            else:
                task.future.set_result(result)
        if not self._closed.is_set():
            self._keep_place(actor)

    def _keep_place(self, actor: Any) -> None:
        """Occupy a place on an excluded machine for as long as the worker lives."""
        places = self._n_places()
        with self._changed:
            self._idle += 1
            if self._idle >= places:
                self._give_up("; ".join(f"{name}: {why}" for name, why in self._excluded()))
        try:
            self._grow()
            while not self._closed.wait(POLL_SECONDS):
                self._ray.get(actor.ready.remote())
        finally:
            with self._changed:
                self._idle -= 1

    def _exclude(self, machine: str, why: Exception) -> None:
        with self._changed:
            if machine in self._unusable:
                return
            self._unusable[machine] = str(why)
        name, reason = self._excluded()[-1]
        print(f"headwise: --ray: {name} is not used: {reason}", file=sys.stderr)

    def _excluded(self) -> list[tuple[str, str]]:
        names = {node["NodeID"]: machine_name(node) for node in self._ray.nodes()}
        return [(names.get(machine, machine), why) for machine, why in self._unusable.items()]

    def _next(self) -> ClusterTask | None:
        with self._changed:
            self._changed.wait_for(lambda: self._tasks or self._closed.is_set())
            return None if self._closed.is_set() else self._tasks.popleft()

    def _retry(self, task: ClusterTask, error: Exception) -> None:
        task.attempts += 1
        if task.attempts >= MAX_ATTEMPTS:
            why = f"{MAX_ATTEMPTS} workers died while processing the same lines, perhaps out of memory"
            task.future.set_exception(UserError(f"--ray: {why}: {first_line(error)}"))
            return
        self._return(task)

    def _return(self, task: ClusterTask) -> None:
        with self._changed:
            self._tasks.appendleft(task)  # it is the next in the output
            self._changed.notify()

    def _give_up(self, why: str) -> None:
        with self._changed:
            self._given_up = why
            while self._tasks:
                self._tasks.popleft().future.set_exception(UserError(f"--ray: {why}"))

"""Document jobs: files that are translated in the background, and stay with their reports for a limited time.

Uploads, results and reports are files on disk, so a waiting job holds no document in memory. Ids cannot be guessed, and
a job is found only with the API key that created it. See `job_routes` for HTTP, `translation` for translation and
`storage` for how long files are kept.
"""

import asyncio
import secrets
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwise.errors import UserError
from headwise.serve.access import log_event
from headwise.serve.models import ModelUnavailable
from headwise.serve.parameters import RequestError
from headwise.serve.progress import JobProgress
from headwise.serve.storage import Storage

RETRY_SECONDS = 10  # after which a client that was refused tries again
UNAVAILABLE = "the model for these languages is currently not available"


@dataclass(frozen=True)
class JobLimits:
    """Limits of document jobs."""

    most: int = 20  # waiting and running ones; 0: the server has no jobs
    per_key: int = 5  # of an API key
    running: int = 2  # at the same time
    seconds: float = 3600.0  # for a job, from the time it starts


@dataclass(eq=False)
class DocumentJob:
    """A file that is or was translated."""

    owner: str  # API key; "" if none is required
    name: str  # of the file
    languages: tuple[str, str]  # source, which may be "auto", and target
    folder: Path
    id: str = field(default_factory=lambda: secrets.token_hex(16))
    progress: JobProgress = field(default_factory=JobProgress)
    outcome: str = ""  # done, failed or cancelled
    error: str = ""
    is_started: bool = False
    task: "asyncio.Task[None] | None" = None

    @property
    def state(self) -> str:
        """One of queued, reading, translating, done, failed, cancelled."""
        running = "translating" if self.progress.is_translating else "reading"
        return self.outcome or (running if self.is_started else "queued")

    @property
    def upload(self) -> Path:
        """The file to translate, until the job ends."""
        return self.folder / f"{self.id}.upload"

    @property
    def result(self) -> Path:
        """The translated file."""
        return self.folder / f"{self.id}.result"

    @property
    def report(self) -> Path:
        """The report, in JSON (`fill_report`)."""
        return self.folder / f"{self.id}.report"


Work = Callable[[DocumentJob], Awaitable[None]]  # reads `upload`, and writes `result` and `report`


class JobStore:
    """All jobs of a server; create it on any thread, and use it on one event loop."""

    def __init__(self, folder: Path, limits: JobLimits, storage: Storage) -> None:
        self.limits, self.storage, self._folder = limits, storage, folder
        self._jobs: dict[str, DocumentJob] = {}
        self._running = asyncio.Semaphore(limits.running)

    async def create(
        self, owner: str, name: str, content: bytes, languages: tuple[str, str], work: Work
    ) -> DocumentJob:
        """Queue a job.

        Raises:
            RequestError: status 429, too many jobs wait or run; 507, no space for the file.
        """
        self._clear()
        active = [job for job in self._jobs.values() if not job.outcome]
        of_key = sum(job.owner == owner for job in active) if owner else 0
        if len(active) >= self.limits.most or of_key >= self.limits.per_key:
            whose = "of this API key " * (len(active) < self.limits.most)
            raise RequestError(
                429,
                f"Slowdown: too many document jobs {whose}are waiting; try again in {RETRY_SECONDS} s",
                {"retry-after": str(RETRY_SECONDS)},
            )
        job = DocumentJob(owner, name, languages, self._folder)
        self._jobs[job.id] = job  # counts from now on
        try:
            await self.storage.write(job.upload, content)
        except BaseException:
            del self._jobs[job.id]
            raise
        job.task = asyncio.create_task(self._run(job, work))
        return job

    def find(self, owner: str, number: str) -> DocumentJob:
        """The job of this API key; `RequestError` if it does not exist any more."""
        self._clear()
        job = self._jobs.get(number)
        if not job or not secrets.compare_digest(job.owner.encode(), owner.encode()):
            raise RequestError(404, "no such job, or it has expired")
        return job

    async def delete(self, job: DocumentJob) -> None:
        """Cancel a job, or forget one that has ended; its files are deleted."""
        if job.outcome:
            self.storage.forget(job.id)
        elif job.task:
            job.task.cancel()
            await asyncio.wait([job.task])
            self.storage.forget(job.id)  # it may have ended meanwhile
            self._end(job, "cancelled")  # also if it was not started

    async def close(self) -> None:
        """Cancel all jobs."""
        for job in [job for job in self._jobs.values() if not job.outcome]:
            await self.delete(job)

    async def _run(self, job: DocumentJob, work: Work) -> None:
        try:
            async with self._running:
                job.is_started = True
                async with asyncio.timeout(self.limits.seconds):
                    await work(job)
            self._end(job, "done")
        except TimeoutError:
            self._end(job, "failed", f"not finished within {self.limits.seconds:g} s; send a smaller file")
        except asyncio.CancelledError:
            self._end(job, "cancelled")
        except Exception as error:
            self._end(job, "failed", failure_message(error))

    def _end(self, job: DocumentJob, outcome: str, error: str = "") -> None:
        already, job.outcome, job.error = bool(job.outcome), outcome, error
        for path in (job.upload,) if outcome == "done" else (job.upload, job.result, job.report):
            self.storage.delete(path)
        self.storage.keep(job.id, *((job.result, job.report) if outcome == "done" else ()))
        if not already:
            log_event(event="job", state=outcome, sentences=job.progress.done)

    def _clear(self) -> None:
        """Forget jobs that have ended and are not kept any longer."""
        self.storage.expire()
        for job in [job for job in self._jobs.values() if job.outcome and not self.storage.has(job.id)]:
            del self._jobs[job.id]


def failure_message(error: Exception) -> str:
    """The message for the client; a bug, and what only the operator should know, is logged."""
    if isinstance(error, ModelUnavailable):
        log_event(event="unavailable", error=str(error))
        return UNAVAILABLE
    if isinstance(error, UserError):
        return str(error)
    where: list[Any] = traceback.format_tb(error.__traceback__)  # the message may contain the text, and is not logged
    log_event(event="fault", error=type(error).__name__, where=where)
    return f"Cannot translate the file: {type(error).__name__}; see the log of the server"

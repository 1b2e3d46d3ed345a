"""The request handlers of document jobs under /v1/documents.

See `jobs` for the jobs and `routes` for what handlers share.
"""

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from headwise.serve.jobs import DocumentJob, JobStore
from headwise.serve.parameters import FILE, RequestError, TermPairs, glossary_terms
from headwise.serve.routes import RequestHandlers, file_response, given_key

if TYPE_CHECKING:
    from starlette.requests import Request

JOBS = "/v1/documents"
JOB_ROUTES = {  # by address: HTTP methods, and methods of `JobHandlers`
    JOBS: {"POST": "create"},
    f"{JOBS}/{{id}}": {"GET": "status", "DELETE": "delete"},
    f"{JOBS}/{{id}}/result": {"GET": "result"},
    f"{JOBS}/{{id}}/report": {"GET": "report"},
}


@dataclass(frozen=True)
class JobHandlers:
    """A method for each address."""

    shared: RequestHandlers
    jobs: JobStore

    async def create(self, request: "Request") -> Any:
        """Queue a file for translation."""
        from starlette.responses import JSONResponse

        values = await self.shared.parameters(request, FILE, compatible=False)
        if not self.jobs.limits.most:
            raise RequestError(404, "this server has no document jobs; use /translate_file")
        name = values["file"].filename or ""
        if not name:
            raise RequestError(400, "Invalid request: empty file")
        source, target, terms = values["source"], values["target"], glossary_terms(values)
        if source == "auto":
            self.shared.router.check_target(target)
        else:
            self.shared.router.find(source, target)
        content = await values["file"].read()
        owner = self._owner(given_key(request, values))
        job = await self.jobs.create(owner, name, content, (source, target), partial(self.translate, terms))
        return JSONResponse(job_json(job), 202, {"location": f"{JOBS}/{job.id}"})

    async def translate(self, terms: TermPairs, job: DocumentJob) -> None:
        """Translate the file of a job."""
        content = await asyncio.to_thread(job.upload.read_bytes)
        written, _, report = await self.shared.translated_file(job.name, content, *job.languages, terms, job.progress)
        await self.jobs.storage.write(job.result, written)
        await self.jobs.storage.write(job.report, report)

    async def status(self, request: "Request") -> Any:
        """The state and progress of a job."""
        return job_json(await self._find(request))

    async def delete(self, request: "Request") -> Any:
        """Cancel a job, or delete one that has ended."""
        job = await self._find(request)
        await self.jobs.delete(job)
        return job_json(job)

    async def result(self, request: "Request") -> Any:
        """Download the translated file."""
        job = await self._find_done(request)
        return file_response(job.result, name=job.name)

    async def report(self, request: "Request") -> Any:
        """The report on the translated file."""
        return file_response((await self._find_done(request)).report, "application/json")

    async def _find(self, request: "Request") -> DocumentJob:
        """The job of a request, which is not counted: clients ask for the progress again and again."""
        key = given_key(request, request.query_params)
        self.shared.access.check_key(key)
        return self.jobs.find(self._owner(key), request.path_params["id"])

    def _owner(self, key: str) -> str:
        """Whose a job is; "" if the server has no keys."""
        return key if self.shared.access.keys else ""

    async def _find_done(self, request: "Request") -> DocumentJob:
        job = await self._find(request)
        if job.state != "done":
            raise RequestError(404, f"this job has no result: {job.state}")
        return job


def job_json(job: DocumentJob) -> dict[str, Any]:
    """The state of a job, with its addresses relative to the server."""
    address = f"{JOBS}/{job.id}"
    progress = job.progress
    return {
        "id": job.id,
        "state": job.state,
        "progress": {
            "sentences": progress.total,
            "translated": progress.done,
            "percent": 100 if job.state == "done" else progress.percent,
        },
        "error": job.error or None,
        "url": address,
        "result": f"{address}/result",
        "report": f"{address}/report",
    }


def without_job_id(path: str) -> str:
    """The path with a placeholder for the id, for metrics.

    >>> without_job_id("/v1/documents/0f3a/result"), without_job_id("/v1/documents"), without_job_id("/v1/translate")
    ('/v1/documents/{id}/result', '/v1/documents', '/v1/translate')
    """
    before, prefix, rest = path.partition(f"{JOBS}/")
    return path if before or not prefix else f"{prefix}{{id}}{''.join(rest.partition('/')[1:])}"

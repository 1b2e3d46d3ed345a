"""The server: an ASGI application for a list of models, and a process that runs it until it is stopped.

SIGTERM stops it gracefully: new connections are rejected, running requests are finished, document jobs
are cancelled, and the exit code is 0.
"""

import logging
import math
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from headwise.documents.glossary.terms import Glossary
from headwise.documents.segment_memory import SegmentMemory
from headwise.errors import UserError
from headwise.serve.access import AccessMiddleware, AccessRules, log_event, log_request, warn_about_readers
from headwise.serve.batching import BatchSettings
from headwise.serve.connections import ACCEPTED_AT_ONCE, ConnectionLimits, allowed_by_system, limited_protocol
from headwise.serve.documents import DocumentLimits, DocumentProcesses
from headwise.serve.job_routes import JOB_ROUTES, JobHandlers, without_job_id
from headwise.serve.jobs import JobLimits, JobStore
from headwise.serve.metrics import Metrics
from headwise.serve.models import ServedModel
from headwise.serve.parameters import RequestLimits
from headwise.serve.router import ModelRouter
from headwise.serve.routes import RequestHandlers, error_response
from headwise.serve.storage import OTHER_FOLDER, Storage, StorageLimits, serving_folder
from headwise.serve.suggestions import Suggestions, suggestions_file
from headwise.serve.usage import UsageCounter
from headwise.text.language_codes import LanguagePair

WAITING = 2048  # connections that the system accepts for this server
SECONDS_BETWEEN_SAME = 60.0
INSTALL = 'pip install "headwise[serve]"'


@dataclass(frozen=True)
class ServerSettings:
    """Settings of a server."""

    port: int = 5000
    socket: str = ""  # path of a Unix socket, instead of an address and port
    access: AccessRules = field(default_factory=AccessRules)
    limits: RequestLimits = field(default_factory=RequestLimits)
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)
    batching: BatchSettings = field(default_factory=BatchSettings)
    documents: DocumentLimits = field(default_factory=DocumentLimits)
    jobs: JobLimits = field(default_factory=JobLimits)
    storage: StorageLimits = field(default_factory=StorageLimits)
    log_text: bool = False
    suggestions: str = ""  # file of suggested translations
    drain: int = 30  # seconds for running requests after SIGTERM
    memories: Mapping[LanguagePair, SegmentMemory] = field(default_factory=dict)  # translation memories
    glossaries: Mapping[LanguagePair, Glossary] = field(default_factory=dict)
    pivot: str = ""  # language through which pairs without a model are translated


def application(
    models: Sequence[ServedModel], settings: ServerSettings, folder: Path, suggestions: Suggestions | None = None
) -> Any:
    """The ASGI application; `folder` stores the files of requests.

    Raises:
        UserError: a required library is not installed.
    """
    try:
        from starlette.applications import Starlette
        from starlette.exceptions import HTTPException
        from starlette.routing import Route
    except ImportError:
        raise UserError(f"serving needs starlette and uvicorn: {INSTALL}") from None
    models = [replace(model, glossaries=settings.glossaries) for model in models]
    metrics = Metrics(models, [*ROUTES, *JOB_ROUTES])
    storage = Storage(settings.storage)
    try:
        for name in ("files", "jobs"):
            (folder / name).mkdir(exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror}; {OTHER_FOLDER}") from None
    handlers = _request_handlers(models, settings, metrics, (storage, folder / "files"), suggestions)
    documents, jobs = handlers.documents, JobStore(folder / "jobs", settings.jobs, storage)
    of_jobs = JobHandlers(handlers, jobs)
    routes = [
        Route(path + "{name}" * (path == DOWNLOADS), handlers.guarded(getattr(handlers, name)), methods=[method])
        for path, (method, name) in ROUTES.items()
    ]
    for path, methods in JOB_ROUTES.items():
        by_method = {method: handlers.guarded(getattr(of_jobs, name)) for method, name in methods.items()}
        routes.append(Route(path, partial(_by_method, by_method), methods=[*by_method]))

    @asynccontextmanager
    async def working(app: Any) -> AsyncIterator[None]:
        for model in models:
            model.open(settings.batching, partial(metrics.batched, model), partial(metrics.looked_up, model))
        await documents.start()
        yield
        await jobs.close()
        await documents.close()
        for model in models:
            await model.close()

    async def not_found(request: Any, error: Any) -> Any:
        return error_response(error.status_code, error.detail, error.headers)

    def ended(method: str, path: str, status: int, seconds: float) -> None:
        metrics.ended(without_job_id(path), status, seconds)
        log_request(method, path, status, seconds)

    app = Starlette(routes=routes, lifespan=working, exception_handlers={HTTPException: not_found})
    return AccessMiddleware(app, settings.access, settings.limits, ended)


async def _by_method(handlers: Mapping[str, Any], request: Any) -> Any:
    return await handlers["GET" if request.method == "HEAD" else request.method](request)


def _request_handlers(
    models: Sequence[ServedModel],
    settings: ServerSettings,
    metrics: Metrics,
    files: tuple[Storage, Path],
    suggestions: Suggestions | None,
) -> RequestHandlers:
    return RequestHandlers(
        ModelRouter(models, settings.memories, settings.pivot),
        settings.limits,
        settings.access,
        metrics,
        *files,
        DocumentProcesses(settings.documents),
        UsageCounter(settings.limits, settings.access.keys.values(), metrics.key_used),
        settings.log_text,
        suggestions,
        bool(settings.jobs.most),
    )


DOWNLOADS = "/download_file/"  # followed by a name
ROUTES = {  # HTTP method, and method of `RequestHandlers`
    "/": ("GET", "page"),
    "/docs": ("GET", "description"),
    "/openapi.json": ("GET", "openapi"),
    "/spec": ("GET", "openapi"),
    "/metrics": ("GET", "prometheus"),
    "/translate": ("POST", "translate"),
    "/detect": ("POST", "detect"),
    "/translate_file": ("POST", "translate_file"),
    DOWNLOADS: ("GET", "download_file"),
    "/suggest": ("POST", "suggest"),
    "/languages": ("GET", "languages"),
    "/frontend/settings": ("GET", "settings"),
    "/health": ("GET", "health"),
    "/v1/translate": ("POST", "native"),
    "/v1/usage": ("GET", "key_usage"),
}


class JsonHandler(logging.Handler):
    """Writes the warnings of libraries as lines of JSON, without tracebacks, which may contain texts.

    The same message is written once in a minute, and then with the number of those that were left out.
    """

    def __init__(self) -> None:
        super().__init__()
        self._left_out: dict[tuple[str, str], int] = {}
        self._since = -math.inf

    def emit(self, record: logging.LogRecord) -> None:
        message = str(record.msg).partition("\n")[0]
        if record.created > self._since + SECONDS_BETWEEN_SAME:
            for (logger, repeated), left_out in self._left_out.items():
                if left_out:
                    log_event(event="repeated", logger=logger, message=repeated, times=left_out)
            self._left_out, self._since = {}, record.created
        key = record.name, message
        if key in self._left_out:
            self._left_out[key] += 1
            return
        self._left_out[key] = 0
        error = record.exc_info[0] if record.exc_info else None
        values = {"error": error.__name__} if error else {}
        log_event(event=record.levelname.lower(), logger=record.name, message=message, **values)


def serve(models: Sequence[ServedModel], settings: ServerSettings) -> None:
    """Run until SIGTERM (a normal end) or Ctrl-C (`KeyboardInterrupt`).

    Raises:
        UserError: the address or port is not available, or a library is missing.
    """
    try:
        import uvicorn
    except ImportError:
        raise UserError(f"serving needs starlette and uvicorn: {INSTALL}") from None
    logging.basicConfig(handlers=[JsonHandler()], force=True)  # of all libraries
    with (
        serving_folder() as folder,
        suggestions_file(settings.suggestions) as suggestions,
    ):
        app = application(models, settings, folder, suggestions)
        host = settings.access.host
        socket = _bind_path(settings.socket) if settings.socket else _bind(host, settings.port)
        # uvicorn re-raises a handled signal for the previous handler, which must ignore SIGTERM
        before = signal.signal(signal.SIGTERM, lambda number, frame: None)
        try:
            address = f"[{host}]" if ":" in host else host
            pairs = ["-".join(pair) for model in models for pair in model.language_pairs]
            url = f"http://{address}:{socket.getsockname()[1]}" if not settings.socket else f"unix:{settings.socket}"
            url += f"{settings.access.url_prefix}/" * (not settings.socket)
            if sys.stderr.isatty() and not settings.socket:
                print(f"Open {url} ({', '.join(pairs)}); Ctrl-C stops the server.", file=sys.stderr, flush=True)
            else:
                log_event(event="serving", url=url, languages=pairs)
            if settings.access.key_file:
                warn_about_readers(settings.access.key_file)
            _listening(uvicorn.Server)(uvicorn_config(app, settings)).run(sockets=[socket])
            log_event(event="ended")
        finally:
            signal.signal(signal.SIGTERM, before)
            if settings.socket:
                Path(settings.socket).unlink(missing_ok=True)


def uvicorn_config(app: Any, settings: ServerSettings) -> Any:
    """The settings of uvicorn."""
    import uvicorn

    return uvicorn.Config(
        app,
        http=limited_protocol(allowed_by_system(settings.connections)),
        backlog=ACCEPTED_AT_ONCE,
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        ws="none",  # even if a library for WebSockets is installed
        loop="asyncio",  # even if uvloop is installed
        timeout_keep_alive=settings.connections.seconds,  # type: ignore[arg-type]  # a number of seconds
        timeout_graceful_shutdown=settings.drain,
    )


def _listening(server: type[Any]) -> type[Any]:
    """A server of uvicorn with a queue of connections longer than what is accepted at once (`ACCEPTED_AT_ONCE`)."""

    class ListeningServer(server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            for one in sockets:
                one.listen(WAITING)

    return ListeningServer


def _bind(host: str, port: int) -> Any:
    import socket

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen(WAITING)  # from here on clients wait instead of being rejected
    except (OSError, OverflowError) as error:
        made.close()
        why = getattr(error, "strerror", None) or "ports are from 0 to 65535"
        raise UserError(f"--host {host} --port {port}: {why}; choose another port; --port 0 finds a free one") from None
    return made


def _bind_path(path: str) -> Any:
    """A Unix socket that its owner and group may use; one that a killed server left is replaced."""
    import socket
    import stat

    if not hasattr(socket, "AF_UNIX"):
        raise UserError("--socket: this system has no Unix sockets; use --host and --port")
    made = socket.socket(socket.AF_UNIX)
    try:
        with suppress(FileNotFoundError):
            if not stat.S_ISSOCK(Path(path).lstat().st_mode):
                raise UserError(f"--socket {path}: is there already, and no socket; choose another path")
            if made.connect_ex(path) == 0:
                raise UserError(f"--socket {path}: another server uses it; choose another path")
            made.close()
            Path(path).unlink()
            made = socket.socket(socket.AF_UNIX)
        made.bind(path)
        Path(path).chmod(0o660)
        made.listen(WAITING)
    except OSError as error:
        made.close()
        raise UserError(f"--socket {path}: {error.strerror or error}; choose another path") from None
    except UserError:
        made.close()
        raise
    return made

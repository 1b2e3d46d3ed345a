"""The server's life: an ASGI application from models, and a process that answers until it is told to stop.

SIGTERM ends it gracefully: nobody new is let in, whoever is in gets an answer, and the exit code is 0.
"""

import signal
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from sightline.errors import UserError
from sightline.serve.access import AccessMiddleware, AccessRules, log_event, log_request
from sightline.serve.batching import BatchSettings
from sightline.serve.connections import protocol_with_timeout
from sightline.serve.files import FileStore
from sightline.serve.metrics import Metrics
from sightline.serve.models import ModelRouter, ServedModel
from sightline.serve.parameters import RequestLimits
from sightline.serve.routes import RequestHandlers, error_response

INSTALL = "pip install 'sightline[serve]'"


@dataclass(frozen=True)
class ServerSettings:
    """How to serve."""

    port: int = 5000
    neighbours: AccessRules = field(default_factory=AccessRules)
    caps: RequestLimits = field(default_factory=RequestLimits)
    pace: BatchSettings = field(default_factory=BatchSettings)
    log_text: bool = False
    drain: int = 30  # seconds that requests may go on for after SIGTERM


def application(models: Sequence[ServedModel], wanted: ServerSettings, folder: Path) -> Any:
    """The ASGI application; `folder` keeps translated files.

    Raises:
        UserError: a library that it needs is not installed.
    """
    try:
        from starlette.applications import Starlette
        from starlette.exceptions import HTTPException
        from starlette.routing import Route
    except ImportError:
        raise UserError(f"serving needs starlette and uvicorn: {INSTALL}") from None
    meters = Metrics(models, ROUTES)
    answers = RequestHandlers(
        ModelRouter(models), wanted.caps, wanted.neighbours, meters, FileStore(folder), wanted.log_text
    )
    routes = [
        Route(path + "{name}" * (path == DOWNLOADS), answers.guarded(getattr(answers, name)), methods=[method])
        for path, (method, name) in ROUTES.items()
    ]

    @asynccontextmanager
    async def working(app: Any) -> AsyncIterator[None]:
        for model in models:
            model.open(wanted.pace, partial(meters.batched, model))
        yield
        for model in models:
            await model.close()

    async def nothing_here(request: Any, error: Any) -> Any:
        return error_response(error.status_code, error.detail, error.headers)

    def ended(method: str, path: str, status: int, seconds: float) -> None:
        meters.ended(path, status, seconds)
        log_request(method, path, status, seconds)

    app = Starlette(routes=routes, lifespan=working, exception_handlers={HTTPException: nothing_here})
    return AccessMiddleware(app, wanted.neighbours, wanted.caps, ended)


DOWNLOADS = "/download_file/"  # with a name behind it
ROUTES = {  # with the method of HTTP, and that of `RequestHandlers`
    "/": ("GET", "page"),
    "/docs": ("GET", "description"),
    "/openapi.json": ("GET", "openapi"),
    "/metrics": ("GET", "metrics"),
    "/translate": ("POST", "translate"),
    "/detect": ("POST", "detect"),
    "/translate_file": ("POST", "translate_file"),
    DOWNLOADS: ("GET", "download_file"),
    "/languages": ("GET", "languages"),
    "/frontend/settings": ("GET", "settings"),
    "/health": ("GET", "health"),
    "/v1/translate": ("POST", "native"),
}


def serve(models: Sequence[ServedModel], wanted: ServerSettings) -> None:
    """Answer until SIGTERM (a normal end) or Ctrl-C (`KeyboardInterrupt`).

    Raises:
        UserError: the address or port cannot be had, or a library is missing.
    """
    try:
        import uvicorn
    except ImportError:
        raise UserError(f"serving needs starlette and uvicorn: {INSTALL}") from None
    with tempfile.TemporaryDirectory(prefix="sightline-") as folder:
        app = application(models, wanted, Path(folder))
        host = wanted.neighbours.host
        config = uvicorn.Config(
            app,
            host=host,
            port=wanted.port,
            http=protocol_with_timeout(wanted.caps.body_seconds),
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="on",
            loop="asyncio",  # whatever else is installed
            timeout_graceful_shutdown=wanted.drain,
        )
        socket = _bind(config, host, wanted.port)
        # uvicorn raises a signal that it has obeyed once more, for whoever handled it before; SIGTERM has done its work
        before = signal.signal(signal.SIGTERM, lambda number, frame: None)
        try:
            address = f"[{host}]" if ":" in host else host
            pairs = ["-".join(direction) for model in models for direction in model.directions]
            log_event(event="serving", url=f"http://{address}:{socket.getsockname()[1]}/", languages=pairs)
            uvicorn.Server(config).run(sockets=[socket])
            log_event(event="ended")
        finally:
            signal.signal(signal.SIGTERM, before)


def _bind(config: Any, host: str, port: int) -> Any:
    import socket

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen(config.backlog)  # from here on clients wait for an answer instead of being turned away
    except (OSError, OverflowError) as error:
        made.close()
        why = getattr(error, "strerror", None) or "ports go from 0 to 65535"
        raise UserError(f"--host {host} --port {port}: {why}; another port may be free: --port 0") from None
    return made

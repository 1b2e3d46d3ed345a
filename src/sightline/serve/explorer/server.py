"""HTTP for the explorer: one page and two questions, on the standard library.

Each request has a thread, so nothing waits for a slow model but who asked for it. A page of another site that a browser
has open must not reach this server: a request is for a name or address that is ours (against DNS rebinding), comes from
our own page, and is JSON, which no foreign form can send.
"""

import json
import sys
import traceback
from collections.abc import Sequence
from functools import cached_property
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from typing import Any

from sightline.errors import UserError
from sightline.report.document import inspection_page
from sightline.serve.explorer.answers import ExplorerModel, Superseded
from sightline.serve.explorer.requests import parse_request
from sightline.serve.hosts import is_own_host

MAX_BODY = 64 * 1024  # bytes
MAX_BODY_WITH_FILE = 24 * 1024 * 1024  # a file of 16 MB in base64, where a model reads files
HANDLERS = {"/api/translate": ExplorerModel.translated, "/api/walk": ExplorerModel.walked}
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class ExplorerServer(ThreadingHTTPServer):
    """Serves models until it is told to stop."""

    daemon_threads = True

    def __init__(self, models: Sequence[ExplorerModel], host: str = "127.0.0.1", port: int = 8000) -> None:
        """Bind to an address; port 0 is any that is free.

        Raises:
            UserError: the address or port cannot be had.
        """
        self.models, self.host = models, host
        self.address_family = AF_INET6 if ":" in host else AF_INET
        try:
            super().__init__((host, port), ExplorerHandler)
        except OSError as error:
            reason = error.strerror or str(error)
            raise UserError(f"--host {host} --port {port}: {reason}; another port may be free: --port 0") from None
        except OverflowError:
            raise UserError(f"--port {port}: ports go from 0 to 65535") from None

    @property
    def url(self) -> str:
        """Where the page is."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.server_address[1]}/"

    @cached_property
    def page(self) -> bytes:
        """The one page."""
        title = "Sightline: " + " and ".join(shown.name for shown in self.models)
        return inspection_page([], title, {"models": [shown.described() for shown in self.models]}).encode("utf-8")

    @property
    def largest_body(self) -> int:
        """Bytes of a request; files are only read where a model reads them."""
        return MAX_BODY_WITH_FILE if any(shown.reads_files for shown in self.models) else MAX_BODY

    def shown(self, number: int) -> ExplorerModel:
        """The model of that number on the page."""
        if number >= len(self.models):
            raise UserError(f"model {number}: this page shows {len(self.models)}, counted from 0")
        return self.models[number]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader who went away is no error; anything else is said on standard error."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            traceback.print_exc()


class ExplorerHandler(BaseHTTPRequestHandler):
    """One request."""

    server: ExplorerServer  # type: ignore[assignment]
    protocol_version = "HTTP/1.1"
    server_version = "Sightline"
    sys_version = ""
    timeout = 60  # seconds to wait for a slow client

    def do_GET(self) -> None:
        if not is_own_host(self.headers.get("Host", ""), self.server.host):
            self.refuse(HTTPStatus.FORBIDDEN, "this server answers to its own address only")
        elif self.path.partition("?")[0] == "/":
            self.reply(HTTPStatus.OK, self.server.page, "text/html; charset=utf-8")
        else:
            self.refuse(HTTPStatus.NOT_FOUND, f"nothing here; the page is at {self.server.url}")

    def do_POST(self) -> None:
        host, length = self.headers.get("Host", ""), self.headers.get("Content-Length", "")
        if not is_own_host(host, self.server.host) or self.headers.get("Origin", f"http://{host}") != f"http://{host}":
            return self.refuse(HTTPStatus.FORBIDDEN, "only this server's own page may ask")
        if self.path not in HANDLERS:
            return self.refuse(HTTPStatus.NOT_FOUND, f"nothing answers at {self.path}")
        if self.headers.get_content_type() != "application/json":
            return self.refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the request must be application/json")
        if not length.isdecimal() or int(length) > self.server.largest_body:
            largest = f"a request has at most {self.server.largest_body:,} bytes"
            return self.refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, largest)
        self.work(self.rfile.read(int(length)))

    def work(self, body: bytes) -> None:
        """Ask the model."""
        try:
            ask = parse_request(body)
            found = HANDLERS[self.path](self.server.shown(ask.model), ask)
        except UserError as error:
            self.refuse(HTTPStatus.BAD_REQUEST, str(error))
        except Superseded as error:
            self.refuse(HTTPStatus.CONFLICT, str(error))
        except Exception:
            traceback.print_exc()
            self.refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "this went wrong; the terminal of the server says how")
        else:
            self.reply(HTTPStatus.OK, json.dumps(found).encode("ascii"), "application/json")

    def refuse(self, status: HTTPStatus, message: str) -> None:
        """Say why not, and read nothing more from this client."""
        self.close_connection = True
        self.reply(status, json.dumps({"error": message}).encode("ascii"), "application/json")

    def reply(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Type": kind, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: what people type is not written down."""

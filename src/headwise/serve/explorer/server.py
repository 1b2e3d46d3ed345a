"""HTTP server of the explorer, on the standard library: one page and two POST requests.

Each request has a thread, so a slow model blocks only its own requests. Against requests from other sites' pages (DNS
rebinding), a request must be for an address of this server, come from its own page, and be JSON.
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

from headwise.errors import UserError
from headwise.evaluate.pages.document import inspection_page
from headwise.serve.explorer.answers import ExplorerModel, Superseded
from headwise.serve.explorer.requests import parse_request
from headwise.serve.hosts import is_own_host

MAX_BODY = 64 * 1024  # bytes
MAX_BODY_WITH_FILE = 24 * 1024 * 1024  # a file of 16 MB in base64
HANDLERS = {"/api/translate": ExplorerModel.translated, "/api/walk": ExplorerModel.walked}
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class ExplorerServer(ThreadingHTTPServer):
    """Serves models until it is stopped."""

    daemon_threads = True

    def __init__(self, models: Sequence[ExplorerModel], host: str = "127.0.0.1", port: int = 8000) -> None:
        """Bind to an address; port 0 chooses a free one.

        Raises:
            UserError: the address or port is not available.
        """
        self.models, self.host = models, host
        self.address_family = AF_INET6 if ":" in host else AF_INET
        try:
            super().__init__((host, port), ExplorerHandler)
        except OSError as error:
            reason = error.strerror or str(error)
            raise UserError(f"--host {host} --port {port}: {reason}; --port 0 finds a free one") from None
        except OverflowError:
            raise UserError(f"--port {port}: ports are from 0 to 65535") from None

    @property
    def url(self) -> str:
        """The address of the page."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.server_address[1]}/"

    @cached_property
    def page(self) -> bytes:
        """The page."""
        title = "Headwise: " + " and ".join(shown.name for shown in self.models)
        return inspection_page([], title, {"models": [shown.described() for shown in self.models]}).encode("utf-8")

    @property
    def largest_body(self) -> int:
        """Maximum bytes of a request; larger if a model reads files."""
        return MAX_BODY_WITH_FILE if any(shown.reads_files for shown in self.models) else MAX_BODY

    def shown(self, number: int) -> ExplorerModel:
        """The model with this number."""
        if number >= len(self.models):
            raise UserError(f"model {number}: this page has {len(self.models)} models, numbered from 0")
        return self.models[number]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Disconnected clients are not errors; print anything else."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            traceback.print_exc()


class ExplorerHandler(BaseHTTPRequestHandler):
    """A request."""

    server: ExplorerServer  # type: ignore[assignment]
    protocol_version = "HTTP/1.1"
    server_version = "Headwise"
    sys_version = ""
    timeout = 60  # seconds to wait for a slow client

    def do_GET(self) -> None:
        if not is_own_host(self.headers.get("Host", ""), self.server.host):
            self.refuse(HTTPStatus.FORBIDDEN, "this host name is not allowed")
        elif self.path.partition("?")[0] == "/":
            self.reply(HTTPStatus.OK, self.server.page, "text/html; charset=utf-8")
        else:
            self.refuse(HTTPStatus.NOT_FOUND, f"not found; the page is at {self.server.url}")

    def do_POST(self) -> None:
        host, length = self.headers.get("Host", ""), self.headers.get("Content-Length", "")
        if not is_own_host(host, self.server.host) or self.headers.get("Origin", f"http://{host}") != f"http://{host}":
            return self.refuse(HTTPStatus.FORBIDDEN, "only the page of this server may send requests")
        if self.path not in HANDLERS:
            return self.refuse(HTTPStatus.NOT_FOUND, f"not found: {self.path}")
        if self.headers.get_content_type() != "application/json":
            return self.refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the request must be application/json")
        if not length.isdecimal() or int(length) > self.server.largest_body:
            largest = f"a request has at most {self.server.largest_body:,} bytes"
            return self.refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, largest)
        self.work(self.rfile.read(int(length)))

    def work(self, body: bytes) -> None:
        """Run the model."""
        try:
            request = parse_request(body)
            response = HANDLERS[self.path](self.server.shown(request.model), request)
        except UserError as error:
            self.refuse(HTTPStatus.BAD_REQUEST, str(error))
        except Superseded as error:
            self.refuse(HTTPStatus.CONFLICT, str(error))
        except Exception:
            traceback.print_exc()
            self.refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error; see the terminal of the server")
        else:
            self.reply(HTTPStatus.OK, json.dumps(response).encode("ascii"), "application/json")

    def refuse(self, status: HTTPStatus, message: str) -> None:
        """Send an error, and close the connection."""
        self.close_connection = True
        self.reply(status, json.dumps({"error": message}).encode("ascii"), "application/json")

    def reply(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Type": kind, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: inputs are not logged."""

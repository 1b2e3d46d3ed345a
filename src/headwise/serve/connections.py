"""Limits of connections that uvicorn does not have: time and size of headers, time of sending, number of connections.

A client is an IP address. See `access` for the limits of bodies and `routes` for those of responses.
"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from headwise.serve.access import log_event

try:
    import resource
except ImportError:  # Windows
    resource = None

if TYPE_CHECKING:
    from asyncio import TimerHandle

    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as Protocol
else:
    Protocol = object

ACCEPTED_AT_ONCE = 8  # connections; four times as many are open before those beyond the limits are closed
FILES_EACH = 2  # open files of a connection: its socket, and what is downloaded
OTHER_FILES = 128  # open files that are no connections: documents, models, libraries, connections to be closed
FEWEST = 8  # connections
CLOSING_SECONDS = 2.0  # in which a client reads 64 KiB of an answer while the server ends


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of connections."""

    seconds: float = 30.0  # for the headers of a request, to wait for the next one, and to read 64 KiB of an answer
    header_bytes: int = 32 * 1024  # of a request, with its address
    headers: int = 100  # of a request
    total: int = 1000  # open connections
    per_client: int = 400  # open connections of an address; a proxy is one client


def allowed_by_system(limits: ConnectionLimits) -> ConnectionLimits:
    """The limits with fewer connections, if this process may not have that many open files; it asks for more first."""
    if resource is None:
        return limits
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.total * FILES_EACH + OTHER_FILES
    if soft not in (resource.RLIM_INFINITY, -1) and soft < wanted:
        soft = wanted if hard in (resource.RLIM_INFINITY, -1) else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft >= wanted:
        return limits
    total = max(FEWEST, (soft - OTHER_FILES) // FILES_EACH)
    warning = f"at most {total} connections, because the system allows {soft} open files; raise it with ulimit -n"
    log_event(event="warning", message=warning)
    return replace(limits, total=total)


class ClosingTransport:
    """A transport of asyncio that tells when it is closed, because it stays open until everything is sent."""

    def __init__(self, transport: Any, closed: Callable[[], None]) -> None:
        self._transport, self._closed = transport, closed

    def close(self) -> None:
        self._transport.close()
        self._closed()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class LimitedConnection(Protocol):
    """The limits, as a mixin for uvicorn's protocol, because uvicorn may not be installed.

    uvicorn itself closes a connection on which no further request arrives (`timeout_keep_alive`).
    """

    limits: ConnectionLimits
    open_connections: Counter[str]  # by address, shared by all connections
    header_bytes = 0  # of the current request
    unparsed = 0  # bytes since the parser last finished headers or part of a body
    refusal = (400, "Invalid HTTP request")
    address = ""
    arriving: "TimerHandle | None" = None  # closes the connection, unless the headers of a request arrive
    unread: "TimerHandle | None" = None  # closes the connection, unless the client reads

    def connection_made(self, transport: Any) -> None:
        self.patience = self.limits.seconds
        super().connection_made(ClosingTransport(transport, self.expect_reading))  # type: ignore[arg-type]
        self.expect_headers()
        self.address = self.client[0] if self.client else ""
        self.open_connections[self.address] += 1
        if self.open_connections[self.address] > self.limits.per_client:
            self.refuse(429, f"more than {self.limits.per_client} connections from your address")
        elif self.open_connections.total() > self.limits.total:
            self.refuse(503, f"more than {self.limits.total} connections")

    def connection_lost(self, exc: Exception | None) -> None:
        self.open_connections[self.address] -= 1
        if not self.open_connections[self.address]:
            del self.open_connections[self.address]
        super().connection_lost(exc)
        for timer in filter(None, (self.arriving, self.unread)):
            timer.cancel()  # releases the connection's memory

    def expect_headers(self) -> None:
        """Close the connection if they do not arrive."""
        self.arriving = self.loop.call_later(self.limits.seconds, self.transport.close)

    def expect_reading(self) -> None:
        """Close the connection if the client does not read: it is closing, or has more than 64 KiB to read."""
        if self.unread:
            self.unread.cancel()
        self.unread = self.loop.call_later(self.patience, self.transport.abort)

    def pause_writing(self) -> None:
        """Called when 64 KiB wait for the client."""
        super().pause_writing()
        self.expect_reading()

    def resume_writing(self) -> None:
        """Called when the client has read most of them."""
        super().resume_writing()
        if self.unread and not self.transport.is_closing():
            self.unread.cancel()
            self.unread = None

    def shutdown(self) -> None:
        """Called when the server ends; it waits for answers, but not for clients that do not read them."""
        self.patience = min(self.patience, CLOSING_SECONDS)
        super().shutdown()
        if self.unread:
            self.expect_reading()

    def _unsupported_upgrade_warning(self) -> None:
        """Called by uvicorn for a request that would rather speak another protocol; it is answered as any other."""

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if not self.arriving and self.cycle.response_complete:
            self.expect_headers()
        self.unparsed += len(data)
        super().data_received(data)
        if self.unparsed > self.limits.header_bytes and not self.transport.is_closing():
            self.refuse(*self.headers_too_large())

    def on_message_begin(self) -> None:
        self.header_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self.count_header(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self.count_header(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self.unparsed = 0
        if self.arriving:
            self.arriving.cancel()
            self.arriving = None
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self.unparsed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.unparsed = 0
        super().on_message_complete()

    def count_header(self, size: int) -> None:
        """Stop the parser if the headers are too large."""
        self.header_bytes += size
        if self.header_bytes > self.limits.header_bytes or len(self.headers) >= self.limits.headers:
            self.refusal = self.headers_too_large()
            raise OverflowError(self.refusal[1])

    def headers_too_large(self) -> tuple[int, str]:
        return (
            431,
            f"the headers of a request may have {self.limits.headers} lines and {self.limits.header_bytes:,} bytes",
        )

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn if the parser fails."""
        self.refuse(*self.refusal)

    def refuse(self, status: int, why: str) -> None:
        """Answer with an error and close the connection."""
        body = json.dumps({"error": why})
        lines = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            "content-type: application/json",
            f"content-length: {len(body)}",
            "connection: close",
        )
        self.transport.write("\r\n".join((*lines, "", body)).encode())
        self.transport.close()


def limited_protocol(limits: ConnectionLimits) -> type[Any]:
    """uvicorn's protocol with these limits, for one server."""
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    shared = {"limits": limits, "open_connections": Counter()}
    return type("LimitedProtocol", (LimitedConnection, HttpToolsProtocol), shared)

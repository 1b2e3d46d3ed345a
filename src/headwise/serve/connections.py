"""Limits of connections that uvicorn does not have: time and size of headers, and the number of connections.

A client is an IP address. Not here: limits of bodies (`access`) and of responses (`routes`).
"""

import json
from collections import Counter
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as Protocol
else:
    Protocol = object


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of connections."""

    seconds: float = 30.0  # a connection without a complete request is closed after one to two times this
    header_bytes: int = 32 * 1024  # of a request, with its address
    headers: int = 100  # of a request
    total: int = 1000  # open connections
    per_client: int = 400  # open connections of an address; a proxy is one client


class LimitedConnection(Protocol):
    """The limits, as a mixin for uvicorn's protocol, because uvicorn may not be installed."""

    limits: ConnectionLimits
    open_connections: Counter[str]  # by address, shared by all connections
    header_bytes = 0  # of the current request
    unparsed = 0  # bytes since the parser last finished headers or part of a body
    refusal = (400, "Invalid HTTP request")
    address = ""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.timer = self.loop.call_later(self.limits.seconds, self.check_idle, self.cycle)
        self.address = self.client[0] if self.client else ""
        self.open_connections[self.address] += 1
        if self.open_connections[self.address] > self.limits.per_client:
            self.refuse(429, f"more than {self.limits.per_client} connections from your address")
        elif self.open_connections.total() > self.limits.total:
            self.refuse(503, f"more than {self.limits.total} connections")

    def connection_lost(self, exc: Exception | None) -> None:
        self.timer.cancel()  # releases the connection's memory
        self.open_connections[self.address] -= 1
        if not self.open_connections[self.address]:
            del self.open_connections[self.address]
        super().connection_lost(exc)

    def check_idle(self, before: Any) -> None:
        """Close the connection if the request is the same as at the last check, and complete."""
        if self.transport.is_closing():
            return
        if self.cycle is before and (before is None or before.response_complete):
            return self.transport.close()
        self.timer = self.loop.call_later(self.limits.seconds, self.check_idle, self.cycle)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
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

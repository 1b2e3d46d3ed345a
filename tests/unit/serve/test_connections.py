"""Connections with a real socket and uvicorn's protocol, on an event loop whose clock the test holds."""

import asyncio
import json
import logging
import resource
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from uvicorn.server import ServerState

from headwise.serve.connections import CLOSING_SECONDS, ConnectionLimits, allowed_by_system
from headwise.serve.server import JsonHandler, ServerSettings, uvicorn_config

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
UPGRADE = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAA\r\n"
PART = 64 * 1024


class ClockLoop(asyncio.SelectorEventLoop):
    """An event loop with a clock that stands still."""

    now = 0.0

    def time(self) -> float:
        return self.now


class Served:
    """A server of connections without a listening socket."""

    def __init__(self, loop: ClockLoop, limits: ConnectionLimits, size: int) -> None:
        self.loop, self.size = loop, size
        self.clients: list[socket.socket] = []
        self.config = uvicorn_config(self.app, ServerSettings(connections=limits))
        self.config.load()
        self.state = ServerState()

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        """Answers with `size` bytes in parts."""
        length = [(b"content-length", str(self.size).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": length})
        for start in range(0, self.size, PART):
            body = b"a" * min(PART, self.size - start)
            await send({"type": "http.response.body", "body": body, "more_body": start + PART < self.size})

    @property
    def connections(self) -> Counter[str]:
        return self.config.http_protocol_class.open_connections  # type: ignore[attr-defined]

    def close(self) -> None:
        for connection in list(self.state.connections):
            connection.transport.abort()
        for client in self.clients:
            client.close()

    async def connect(self) -> socket.socket:
        """A client, whose system stores little of what it has not read."""
        theirs, ours = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        theirs.setblocking(False)
        self.clients.append(theirs)
        await self.loop.connect_accepted_socket(
            lambda: self.config.http_protocol_class(self.config, self.state, {}, self.loop),  # type: ignore[call-arg, arg-type]
            ours,
        )
        return theirs

    async def after(self, seconds: float) -> int:
        """The open connections after this time."""
        self.loop.now += seconds
        for _ in range(20):
            await asyncio.sleep(0)
        return self.connections.total()

    async def received(self, client: socket.socket, size: int = 1 << 30) -> int:
        """The bytes that the client reads, at most `size`."""
        found = 0
        while found < size:
            try:
                part = client.recv(min(PART, size - found))
            except (BlockingIOError, ConnectionResetError):
                await self.after(0)
                try:
                    part = client.recv(min(PART, size - found))
                except (BlockingIOError, ConnectionResetError):
                    break
            if not part:
                break
            found += len(part)
        return found


def with_server(use: Callable[[Served], Awaitable[None]], size: int = 2, **limits: Any) -> None:
    loop = ClockLoop()
    server = Served(loop, ConnectionLimits(seconds=30.0, **limits), size)
    try:
        loop.run_until_complete(use(server))
    finally:
        server.close()
        loop.run_until_complete(server.after(0))
        loop.close()


@pytest.mark.parametrize("said", [b"", b"GET /", REQUEST])
def test_headers_that_do_not_arrive_close_the_connection(said: bytes) -> None:
    async def use(server: Served) -> None:
        client = await server.connect()
        assert await server.after(29) == 1
        client.send(said or b"G")
        assert await server.after(0.5) == 1
        assert await server.after(0.6) == 0

    with_server(use)


def test_a_connection_waits_for_the_next_request_from_the_end_of_an_answer() -> None:
    async def use(server: Served) -> None:
        client = await server.connect()
        for _ in range(3):
            client.send(REQUEST + b"\r\n")
            assert await server.after(0) == 1 and await server.received(client)
            assert await server.after(29) == 1
        client.send(REQUEST)  # without the end of the headers
        assert await server.after(2) == 1
        for _ in range(14):
            client.send(b"X-A: b\r\n")
            assert await server.after(2) == 1
        client.send(b"X-A: b\r\n")
        assert await server.after(2) == 0

    with_server(use)


@pytest.mark.parametrize("size", [10 * PART, PART // 2])
@pytest.mark.parametrize("header", [b"", b"Connection: close\r\n"])
def test_a_client_that_does_not_read_is_disconnected(size: int, header: bytes) -> None:
    async def use(server: Served) -> None:
        client = await server.connect()
        client.send(REQUEST + header + b"\r\n")
        await server.after(0)
        assert await server.after(29) == 1
        await server.after(2)  # the time of reading, or of the next request; then that of closing
        assert await server.after(30) == 0 and not server.state.connections

    with_server(use, size)


def test_a_client_that_has_read_waits_like_others() -> None:
    async def use(server: Served) -> None:
        client = await server.connect()
        client.send(REQUEST + b"\r\n")
        await server.after(0)
        await server.after(20)
        assert await server.received(client) > 3 * PART
        assert await server.after(25) == 1

    with_server(use, 3 * PART)


def test_a_client_that_reads_slowly_gets_everything() -> None:
    async def use(server: Served) -> None:
        client = await server.connect()
        client.send(REQUEST + b"Connection: close\r\n\r\n")
        found = 0
        while part := await server.received(client, 2 * PART):
            found += part
            await server.after(20)
        assert found > 40 * PART and await server.after(0) == 0

    with_server(use, 40 * PART)


@pytest.mark.parametrize("size", [10 * PART, PART // 2])
def test_the_end_of_a_server_waits_for_no_client_that_does_not_read(size: int) -> None:
    async def use(server: Served) -> None:
        client = await server.connect()
        client.send(REQUEST + b"\r\n")
        await server.after(0)
        for connection in list(server.state.connections):
            connection.shutdown()
        assert await server.after(CLOSING_SECONDS / 2) == 1
        assert await server.after(CLOSING_SECONDS) == 0

    with_server(use, size)


@pytest.mark.parametrize(
    ("soft", "hard", "total", "limited"), [(64, 64, 8, True), (64, 1024, 448, True), (1024, 4096, 1000, False)]
)
def test_connections_fit_into_the_open_files_of_the_system(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, total: int, limited: bool
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, values: asked.append(values))
    assert allowed_by_system(ConnectionLimits(total=1000)).total == total
    assert asked == [(min(hard, 2128), hard)]
    assert ("ulimit -n" in capsys.readouterr().err) is limited


def test_the_same_message_of_a_library_is_logged_once_in_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    handler = JsonHandler()
    for second, message in ((0, "full"), (1, "full"), (2, "other"), (59, "full"), (61, "full"), (62, "full")):
        record = logging.LogRecord("asyncio", logging.ERROR, "", 0, message, (), None)
        record.created = 1000.0 + second
        handler.emit(record)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["event"], line["message"], line.get("times")) for line in lines] == [
        ("error", "full", None),
        ("error", "other", None),
        ("repeated", "full", 2),
        ("error", "full", None),
    ]


def test_upgrades_to_another_protocol_are_counted() -> None:
    async def use(server: Served) -> None:
        for _ in range(5):
            clients = [await server.connect() for _ in range(3)]
            for client in clients:
                client.send(REQUEST + UPGRADE + b"\r\n")
            assert await server.after(0) == 3
            refused = await server.connect()
            await server.after(0)
            assert b" 429 " in refused.recv(100) and b" 200 " in clients[0].recv(100)
            for client in (refused, *clients):
                client.close()
            assert await server.after(0) == 0

    with_server(use, per_client=3)

"""Before a request is looked at, and after it was answered: hosts, origins, keys, sizes, times, and one line of log.

A page of another site that a browser has open must not reach a server on this machine (against DNS rebinding): requests
are for a name or address that is ours, and come from no other site's page unless the operator allows that. Plain ASGI,
so that a body is counted while it arrives. Not here: what a request says (`asked`).
"""

import asyncio
import hmac
import json
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sightline.errors import UserError
from sightline.serve.hosts import is_own_host
from sightline.serve.parameters import RequestError, RequestLimits

HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
}
CORS_HEADERS = {
    "access-control-allow-methods": "GET, POST",
    "access-control-allow-headers": "authorization, content-type",
}
OnRequestEnd = Callable[[str, str, int, float], None]  # method, path, status, seconds


@dataclass(frozen=True)
class AccessRules:
    """Who may ask."""

    host: str = "127.0.0.1"  # that the server is bound to
    names: tuple[str, ...] = ()  # further ones that a request may be for, as behind a proxy
    origins: tuple[str, ...] = ()  # other sites whose pages may ask
    keys: tuple[str, ...] = ()  # that are asked for; none: no key is needed

    def check(self, headers: Mapping[str, str]) -> None:
        """`RequestError` for a request that is not for us, or from another site's page."""
        host, origin = headers.get("host", ""), headers.get("origin", "")
        is_open = self.host in ("0.0.0.0", "::")  # anybody's name for this machine may lead here
        if not (is_open or host in self.names or host.rpartition(":")[0] in self.names or is_own_host(host, self.host)):
            raise RequestError(403, "this server answers to its own address only; --hosts names others")
        from_page = origin.startswith(("http://", "https://"))
        if from_page and origin not in self.origins and origin.partition("://")[2] != host:
            raise RequestError(403, "pages of other sites may not ask; --origins names those that may")

    def check_key(self, given: str) -> None:
        """`RequestError` without a key that is known; every one is compared, in constant time."""
        if self.keys:
            matches = [hmac.compare_digest(given.encode(), key.encode()) for key in self.keys]
            if not given:
                raise RequestError(403, "Please contact the server operator to get an API key")
            if not any(matches):
                raise RequestError(403, "Invalid API key")


def read_keys(path: str) -> tuple[str, ...]:
    """One key a line; what follows a blank is a note on whose it is.

    Raises:
        UserError: the file cannot be read, is empty, or a key is too short to be one.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--api-keys {path}: {getattr(error, 'strerror', None) or 'is not UTF-8'}") from None
    keys = tuple(line.split()[0] for line in lines if line.strip() and not line.startswith("#"))
    if not keys:
        raise UserError(f"--api-keys {path}: has no key; write one a line, such as {secrets.token_urlsafe(24)}")
    short = next((number for number, line in enumerate(lines, 1) if line.split() and len(line.split()[0]) < 16), 0)
    if short and not lines[short - 1].startswith("#"):
        raise UserError(f"--api-keys {path}, line {short}: a key of fewer than 16 characters is soon guessed")
    return keys


class AccessMiddleware:
    """An ASGI application around another."""

    def __init__(self, app: Any, neighbours: AccessRules, caps: RequestLimits, ended: OnRequestEnd) -> None:
        self.app, self.neighbours, self.caps, self.ended = app, neighbours, caps, ended

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        started, answer = time.monotonic(), ResponseSender(send, self.neighbours.origins, origin_of(scope))
        try:
            self.neighbours.check(headers := headers_of(scope))
            length = headers.get("content-length", "")
            if length.isdecimal() and int(length[:18]) > self.caps.body:
                raise body_too_large(self.caps)
            if scope["method"] == "OPTIONS" and headers.get("origin", "-") in self.neighbours.origins:
                return await answer.empty()
            await self.app(scope, LimitedBody(receive, self.caps), answer)
        except RequestError as error:
            await answer.refuse(error)
        finally:
            self.ended(scope["method"], scope["path"], answer.status, time.monotonic() - started)


class LimitedBody:
    """A body that is counted while it arrives, and must arrive in time."""

    def __init__(self, receive: Any, caps: RequestLimits) -> None:
        self.receive, self.caps = receive, caps
        self.size, self.is_whole, self.deadline = 0, False, time.monotonic() + caps.body_seconds

    async def __call__(self) -> Any:
        if self.is_whole:
            return await self.receive()  # which waits until the client goes away
        try:
            async with asyncio.timeout(self.deadline - time.monotonic()):
                message = await self.receive()
        except TimeoutError:
            raise RequestError(408, f"the request did not arrive within {self.caps.body_seconds:g} s", CLOSE) from None
        self.size += len(message.get("body", b""))
        self.is_whole = not message.get("more_body", False)
        if self.size > self.caps.body:
            raise body_too_large(self.caps)
        return message


class ResponseSender:
    """Where an answer goes, with the headers that every answer has."""

    def __init__(self, send: Any, origins: Sequence[str], origin: str) -> None:
        self.send, self.status = send, 0
        self.headers = dict(HEADERS)
        if origin in origins:
            self.headers |= {"access-control-allow-origin": origin, "vary": "origin", **CORS_HEADERS}

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            known = {name.lower() for name, _ in message["headers"]}
            more = [
                (name.encode(), value.encode()) for name, value in self.headers.items() if name.encode() not in known
            ]
            message = {**message, "headers": [*message["headers"], *more]}
        await self.send(message)

    async def empty(self) -> None:
        """What a browser wants to know before it lets another site's page ask: the headers say it."""
        await self({"type": "http.response.start", "status": 204, "headers": []})
        await self.send({"type": "http.response.body"})

    async def refuse(self, error: RequestError) -> None:
        """Say why not, unless an answer has begun."""
        if self.status:
            raise error
        body = json.dumps({"error": str(error)}).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), **error.headers}
        encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await self({"type": "http.response.start", "status": error.status, "headers": encoded})
        await self.send({"type": "http.response.body", "body": body})


CLOSE = {"connection": "close"}  # what is still on its way is not read


def body_too_large(caps: RequestLimits) -> RequestError:
    """For a body."""
    return RequestError(413, f"a request has at most {caps.body:,} bytes", CLOSE)


def headers_of(scope: Any) -> dict[str, str]:
    """By their names in small letters; the last of those of one name."""
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def origin_of(scope: Any) -> str:
    """The site whose page asks; "" for no page."""
    return headers_of(scope).get("origin", "")


def log_event(**values: Any) -> None:
    """One line of JSON on standard error, with the time."""
    now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    print(json.dumps({"time": f"{now}Z", **values}, ensure_ascii=False), file=sys.stderr, flush=True)


def log_request(method: str, path: str, status: int, seconds: float) -> None:
    """Of a request: never its text, nor what follows the path."""
    log_event(event="request", method=method, path=path, status=status, ms=round(1000 * seconds, 1))

"""Middleware around all requests: allowed hosts and origins, API keys, size and time limits, and the log.

Against DNS rebinding, a request must be for an address of this server; pages of other sites need the operator's
permission. Plain ASGI, so that a body is counted while it is received. See `parameters` for the content of requests.
"""

import asyncio
import hashlib
import hmac
import json
import os
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwise.errors import UserError
from headwise.serve.hosts import is_own_host
from headwise.serve.parameters import RequestError, RequestLimits

HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
}
CORS_HEADERS = {
    "access-control-allow-methods": "GET, POST, DELETE",
    "access-control-allow-headers": "authorization, content-type",
}
OnRequestEnd = Callable[[str, str, int, float], None]  # method, path, status, seconds


@dataclass(frozen=True)
class AccessRules:
    """The hosts, sites and API keys that may send requests."""

    host: str = "127.0.0.1"  # address that the server is bound to
    names: tuple[str, ...] = ()  # further host names, such as those of a proxy
    origins: tuple[str, ...] = ()  # other sites whose pages may send requests
    keys: Mapping[str, str] = field(default_factory=dict)  # API keys and their names; none: no key is required
    key_file: str = ""  # with these keys
    url_prefix: str = ""  # path in front of all addresses, such as /mt, which a proxy may remove

    def check(self, headers: Mapping[str, str]) -> None:
        """`RequestError` for a foreign host name, or a page of another site."""
        host, names = headers.get("host", "").lower(), {name.lower() for name in self.names}
        is_open = self.host in ("0.0.0.0", "::")  # any name may resolve to this machine
        if not (is_open or host in names or host.rpartition(":")[0] in names or is_own_host(host, self.host.lower())):
            raise RequestError(403, "this host name is not allowed; allow it with --hosts")
        if self._from_other_site(headers) and not self.allows(headers.get("origin", "null")):
            raise RequestError(403, "requests from pages of other sites are not allowed; allow a site with --origins")

    def allows(self, origin: str) -> bool:
        """Whether the operator allows pages of this site; "null" is the origin of a page without a site."""
        return "*" in self.origins or origin in self.origins

    def _from_other_site(self, headers: Mapping[str, str]) -> bool:
        """Whether a page of another site, or of none, sends the request; not for links, and browser extensions.

        Without an origin, Fetch Metadata tell (https://www.w3.org/TR/fetch-metadata).
        """
        if origin := headers.get("origin", ""):
            return origin == "null" or (
                origin.startswith(("http://", "https://"))
                and origin.partition("://")[2].lower() != headers.get("host", "").lower()
            )
        is_link = headers.get("sec-fetch-mode", "") == "navigate"
        return headers.get("sec-fetch-site", "") in ("cross-site", "same-site") and not is_link

    def check_key(self, given: str) -> str:
        """The name of an API key, "" if none is required; compares with every key in constant time.

        Raises:
            RequestError: the key is not valid.
        """
        if not self.keys:
            return ""
        encoded = given.encode("utf-8", "replace")  # JSON allows unpaired surrogates
        names = [name for key, name in self.keys.items() if hmac.compare_digest(encoded, key.encode())]
        if not given:
            raise RequestError(403, "Please contact the server operator to get an API key")
        if not names:
            raise RequestError(403, "Invalid API key")
        return names[0]


def read_keys(path: str) -> dict[str, str]:
    """Read API keys and their names: one key a line, with an optional note after a blank, which is its name.

    The name of a key without a note is a digest. Keys with the same note share a name.

    Raises:
        UserError: the file cannot be read or is empty, or a key is too short.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--api-keys {path}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None
    keys: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        key, *note = line.split(maxsplit=1)
        if len(key) < 16:
            raise UserError(f"--api-keys {path}, line {number}: the key is too short; use at least 16 characters")
        keys[key] = note[0].strip() if note else hashlib.sha256(key.encode()).hexdigest()[:8]
    if not keys:
        raise UserError(f"--api-keys {path}: no keys; write one per line, such as {secrets.token_urlsafe(24)}")
    return keys


def warn_about_readers(path: str) -> None:
    """Log a warning if other users of this computer can read a file of API keys."""
    if os.name == "posix" and Path(path).stat().st_mode & 0o077:
        warning = f"--api-keys {path}: other users of this computer can read the keys; run chmod 600 {path}"
        log_event(event="warning", message=warning)


class AccessMiddleware:
    """ASGI middleware."""

    def __init__(self, app: Any, access: AccessRules, limits: RequestLimits, ended: OnRequestEnd) -> None:
        self.app, self.access, self.limits, self.ended = app, access, limits, ended
        self.memory = BodyMemory(limits.body_memory)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        lacks_slash = scope["path"] == self.access.url_prefix
        scope = without_prefix(scope, self.access.url_prefix)
        headers = headers_of(scope)
        origin = headers.get("origin", "")
        started, answer = time.monotonic(), ResponseSender(send, origin if self.access.allows(origin) else "")
        body = LimitedBody(receive, self.limits, self.memory)
        try:
            check_repeated(scope)
            self.access.check(headers)
            if lacks_slash:  # addresses in the page are relative
                location = f"{self.access.url_prefix.rpartition('/')[2]}/"
                raise RequestError(308, f"this server is at {self.access.url_prefix}/", {"location": location})
            length = headers.get("content-length", "")
            if length.isdecimal() and int(length[:18]) > self.limits.body:
                raise body_too_large(self.limits)
            if scope["method"] == "OPTIONS" and origin and self.access.allows(origin):
                return await answer.empty()
            await self.app(scope, body, answer)
        except RequestError as error:
            await answer.refuse(error)
        finally:
            self.memory.release(body.size)
            self.ended(scope["method"], scope["path"], answer.status, time.monotonic() - started)


class BodyMemory:
    """The size of the bodies of all requests that are not answered yet."""

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0

    def take(self, size: int) -> None:
        """Count received bytes; `RequestError` above the limit."""
        self.used += size
        if self.used > self.limit:
            raise RequestError(503, "too many large requests at once; try again", {**CLOSE, "retry-after": "1"})

    def release(self, size: int) -> None:
        """Bytes of an answered request."""
        self.used -= size


class LimitedBody:
    """Receives a request body, with limits on size, time and the memory of all bodies."""

    def __init__(self, receive: Any, limits: RequestLimits, memory: BodyMemory) -> None:
        self.receive, self.limits, self.memory = receive, limits, memory
        self.size, self.is_complete, self.deadline = 0, False, time.monotonic() + limits.body_seconds

    async def __call__(self) -> Any:
        if self.is_complete:
            return await self.receive()  # waits until the client disconnects
        try:
            async with asyncio.timeout(self.deadline - time.monotonic()):
                message = await self.receive()
        except TimeoutError:
            raise RequestError(
                408, f"the request was not received within {self.limits.body_seconds:g} s", CLOSE
            ) from None
        received = len(message.get("body", b""))
        self.size += received
        self.memory.take(received)
        self.is_complete = not message.get("more_body", False)
        if self.size > self.limits.body:
            raise body_too_large(self.limits)
        return message


class ResponseSender:
    """Sends responses, with the headers that all of them have."""

    def __init__(self, send: Any, allowed_origin: str) -> None:
        self.send, self.status = send, 0
        self.headers = dict(HEADERS)
        if allowed_origin:
            self.headers |= {"access-control-allow-origin": allowed_origin, "vary": "origin", **CORS_HEADERS}

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            present = {name.lower() for name, _ in message["headers"]}
            more = [
                (name.encode(), value.encode()) for name, value in self.headers.items() if name.encode() not in present
            ]
            message = {**message, "headers": [*message["headers"], *more]}
        await self._send_in_parts(message)

    async def _send_in_parts(self, message: Any) -> None:
        """A long body in parts, so that only one of them waits for a client that reads slowly."""
        body = message.get("body", b"")
        for start in range(0, len(body) - PART, PART):
            await self.send({"type": message["type"], "body": body[start : start + PART], "more_body": True})
        await self.send({**message, "body": body[(len(body) - 1) // PART * PART :]} if body else message)

    async def empty(self) -> None:
        """The answer to a CORS preflight request: its headers."""
        await self({"type": "http.response.start", "status": 204, "headers": []})
        await self.send({"type": "http.response.body"})

    async def refuse(self, error: RequestError) -> None:
        """Send an error, unless the response has started."""
        if self.status:
            raise error
        body = json.dumps({"error": str(error)}).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), **error.headers}
        encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await self({"type": "http.response.start", "status": error.status, "headers": encoded})
        await self.send({"type": "http.response.body", "body": body})


PART = 64 * 1024  # bytes of a response that are sent at once
ONCE = (b"host", b"origin", b"authorization", b"content-type", b"content-length")
CLOSE = {"connection": "close"}  # the rest of the request is not read


def body_too_large(limits: RequestLimits) -> RequestError:
    """The error for a body above the limit."""
    return RequestError(413, f"the request is too large; the limit is {limits.body:,} bytes", CLOSE)


def check_repeated(scope: Any) -> None:
    """`RequestError` if a header that may occur once occurs again: a proxy might read another one than this server."""
    names = Counter(name.lower() for name, _ in scope["headers"])
    for name in (name for name in ONCE if names[name] > 1):
        raise RequestError(400, f"Invalid request: the header {name.decode()} is repeated", CLOSE)


def without_prefix(scope: Any, prefix: str) -> Any:
    """A request for the address without the prefix, if it has it."""
    path = scope["path"]
    if not prefix or not (path == prefix or path.startswith(f"{prefix}/")):
        return scope
    rest = path[len(prefix) :] or "/"
    return {**scope, "path": rest, "raw_path": rest.encode()}


def headers_of(scope: Any) -> dict[str, str]:
    """Headers by lower-case name; the last of repeated ones."""
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def log_event(**values: Any) -> None:
    """Write one line of JSON to standard error, with the time."""
    now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    print(json.dumps({"time": f"{now}Z", **values}, ensure_ascii=False), file=sys.stderr, flush=True)


def log_request(method: str, path: str, status: int, seconds: float) -> None:
    """Log a request, without its text and query."""
    log_event(event="request", method=method, path=path, status=status, ms=round(1000 * seconds, 1))

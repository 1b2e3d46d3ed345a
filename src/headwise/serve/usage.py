"""Usage of the server by each API key, or each address if there are no keys, and its limits per hour.

An hour begins with the first request of a client. Counts are kept in memory, for a bounded number of clients. See
`access` for the check of keys and `metrics` for the metrics.
"""

import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from headwise.serve.parameters import RequestError, RequestLimits, check_limit

SECONDS_PER_HOUR = 3600
MOST_CLIENTS = 10_000  # clients with an hour of their own; the oldest are forgotten
_client: ContextVar[str] = ContextVar("client", default="")  # of the current request, and of the work that it starts


@dataclass
class Usage:
    """Counted requests and characters of a client."""

    requests: int = 0
    characters: int = 0  # of the texts to translate
    began: float = field(default_factory=time.monotonic)

    def add(self, requests: int, characters: int) -> None:
        self.requests += requests
        self.characters += characters


class UsageCounter:
    """Counts the usage of all clients, and rejects requests above the limits."""

    def __init__(
        self,
        limits: RequestLimits,
        names: Iterable[str],
        counted: Callable[[str, int, int], None] = lambda name, requests, characters: None,
    ) -> None:
        """`names` are those of the API keys; `counted` is called with a name, requests and characters."""
        self.limits, self.counted = limits, counted
        self.totals = {name: Usage() for name in names}
        self.hours: OrderedDict[str, Usage] = OrderedDict()  # oldest first

    def start(self, client: str, characters: int) -> None:
        """Count a request of a client, a name or an address, with its characters.

        Raises:
            RequestError: it exceeds a limit; with the seconds until the end of the client's hour.
        """
        self._check(client, 1, max(characters, 1))
        _client.set(client)
        self._count(client, 1, characters)

    def expect(self, characters: int) -> None:
        """Check whether sentences of a file of the current request may be translated; `RequestError` as for `start`."""
        self._check(_client.get(), 0, characters)

    def add(self, characters: int) -> None:
        """Count a translated sentence of a file of the current request; `RequestError` as for `start`."""
        self._check(_client.get(), 0, characters)  # other requests of the client may have been counted meanwhile
        self._count(_client.get(), 0, characters)

    def _check(self, client: str, requests: int, characters: int) -> None:
        limits, hour = self.limits, self.hour_of(client)
        if limits.characters_per_hour:
            check_limit(None, characters, limits.characters_per_hour)
        for limit, used, unit in (
            (limits.requests_per_hour, hour.requests + requests, "requests"),
            (limits.characters_per_hour, hour.characters + characters, "characters"),
        ):
            if limit and used > limit:
                seconds = self.seconds_left(hour)
                message = f"Slowdown: the limit is {limit:,} {unit} per hour; try again in {seconds} s"
                raise RequestError(429, message, {"retry-after": str(seconds)})

    def _count(self, client: str, requests: int, characters: int) -> None:
        self.hour_of(client).add(requests, characters)
        if client in self.totals:
            self.totals[client].add(requests, characters)
            self.counted(client, requests, characters)

    def hour_of(self, client: str) -> Usage:
        """The usage of a client in its current hour."""
        while self.hours and self.seconds_left(next(iter(self.hours.values()))) <= 0:
            self.hours.popitem(last=False)
        if client not in self.hours:
            if len(self.hours) >= MOST_CLIENTS:
                self.hours.popitem(last=False)
            self.hours[client] = Usage()
        return self.hours[client]

    def seconds_left(self, hour: Usage) -> int:
        """Seconds until an hour ends."""
        return math.ceil(hour.began + SECONDS_PER_HOUR - time.monotonic())

    def report(self, name: str) -> dict[str, Any]:
        """The usage of an API key, for a response."""
        total, hour, limits = self.totals[name], self.hour_of(name), self.limits
        return {
            "key": name,
            "requests": total.requests,
            "characters": total.characters,
            "hour": {
                "requests": hour.requests,
                "characters": hour.characters,
                "max_requests": limits.requests_per_hour or None,
                "max_characters": limits.characters_per_hour or None,
                "seconds_left": self.seconds_left(hour),
            },
        }


def client_address(host: str) -> str:
    """An address for counting: IPv6 addresses of one network, of which a client may have many, are one.

    >>> client_address("192.0.2.1"), client_address("2001:db8::1:2"), client_address("testclient")
    ('192.0.2.1', '2001:db8::/64', 'unknown')
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "unknown"
    if address.version == 4:
        return str(address)
    return str(address.ipv4_mapped or ipaddress.ip_network((int(address), 64), strict=False))

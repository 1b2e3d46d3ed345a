"""Allowed Host headers of a local server, against DNS rebinding."""

import ipaddress


def is_own_host(host: str, own: str) -> bool:
    """Whether a Host header names a server bound to `own`: that name, localhost, or an IP address.

    IP addresses cannot be rebound.

    >>> is_own_host("localhost:80", "127.0.0.1"), is_own_host("[::1]", "::1"), is_own_host("evil.example", "127.0.0.1")
    (True, True, False)
    """
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    return name in (own, "localhost") or _is_address(name.strip("[]"))


def is_loopback(address: str) -> bool:
    """Whether only this computer reaches a server bound to `address`.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    return address == "localhost" or (_is_address(address) and ipaddress.ip_address(address).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

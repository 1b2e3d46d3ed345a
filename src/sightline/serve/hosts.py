"""For which Host headers a server on this machine answers (against DNS rebinding)."""

import ipaddress


def is_own_host(host: str, ours: str) -> bool:
    """Whether a Host header names a server bound to `ours`: that name, localhost, or a bare address.

    Nobody rebinds a bare address.

    >>> is_own_host("localhost:80", "127.0.0.1"), is_own_host("[::1]", "::1"), is_own_host("evil.example", "127.0.0.1")
    (True, True, False)
    """
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    return name in (ours, "localhost") or _is_address(name.strip("[]"))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

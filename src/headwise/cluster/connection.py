"""Connection to a Ray cluster, or to a local one, and its machines."""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwise.errors import UserError


@contextmanager
def ray_connection(address: str) -> Iterator[Any]:
    """The module `ray`, connected; a cluster that was started for this purpose is stopped afterwards.

    Args:
        address: HOST:PORT, "auto" for the cluster of this machine, "" for a temporary local one.

    Raises:
        UserError: Ray is not installed, or the address is not reachable.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray's future default, without a warning
    try:
        import ray
    except ImportError:
        raise UserError('--ray needs Ray: pip install "headwise[ray]"') from None
    if ray.is_initialized():
        yield ray
        return
    _check_reachable(address)
    if not address:
        _keep_token_here()
    try:
        ray.init(address or "local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UserError(f"--ray {address}: {str(error).splitlines()[0]}; start a cluster: ray start --head") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _keep_token_here() -> None:
    """Keep the token of a temporary cluster in the environment, unless the user has one.

    Otherwise Ray (since 2.60) writes a token to ~/.ray that every later `ray start` of this user requires. Then other
    machines could not join.
    """
    if not ("RAY_AUTH_TOKEN_PATH" in os.environ or Path("~/.ray/auth_token").expanduser().exists()):
        os.environ.setdefault("RAY_AUTH_TOKEN", os.urandom(32).hex())


def live_nodes(ray: Any) -> list[dict[str, Any]]:
    """The machines that are part of the cluster."""
    return [node for node in ray.nodes() if node["Alive"]]


def machine_name(node: Mapping[str, Any]) -> str:
    """The name of a machine in messages.

    >>> machine_name({"NodeManagerHostname": "gpu-3", "NodeManagerAddress": "10.0.0.7"})
    'gpu-3 (10.0.0.7)'
    """
    return f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"


def _check_reachable(address: str) -> None:
    """Whether the address is reachable: Ray itself would retry for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdecimal()):
        return
    import socket  # slow to import, and needed for a cluster alone

    try:
        socket.create_connection((host, int(port)), 10).close()
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or "no such port"
        raise UserError(f"--ray {address}: {why}; start a cluster: ray start --head --port {port}") from None

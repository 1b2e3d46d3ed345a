"""To a cluster of Ray's, or one of its own on this machine, and the machines of it."""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sightline.errors import UserError


@contextmanager
def ray_connection(address: str) -> Iterator[Any]:
    """Inside, the module `ray`, connected; a cluster that was started for it ends with it.

    Args:
        address: HOST:PORT, "auto" for the cluster of this machine, "" for one that is started for this alone.

    Raises:
        UserError: Ray is not installed, or nobody answers at the address.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody is told what is done here
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # what Ray will do, and otherwise warns of
    try:
        import ray
    except ImportError:
        raise UserError("--ray needs Ray: pip install 'sightline[ray]'") from None
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
    """Let a cluster of this process alone find its token in the environment, unless the user has one.

    Without one, Ray (since 2.60) writes a token to ~/.ray, and every later `ray start` of this user asks for it: other
    machines, which do not have it, could not join.
    """
    if not ("RAY_AUTH_TOKEN_PATH" in os.environ or Path("~/.ray/auth_token").expanduser().exists()):
        os.environ.setdefault("RAY_AUTH_TOKEN", os.urandom(32).hex())


def live_nodes(ray: Any) -> list[dict[str, Any]]:
    """The machines of the cluster that have not left it."""
    return [node for node in ray.nodes() if node["Alive"]]


def machine_name(node: Mapping[str, Any]) -> str:
    """How messages call a machine.

    >>> machine_name({"NodeManagerHostname": "gpu-3", "NodeManagerAddress": "10.0.0.7"})
    'gpu-3 (10.0.0.7)'
    """
    return f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"


def _check_reachable(address: str) -> None:
    """Whether somebody is there: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdecimal()):
        return
    import socket  # slow to import, and needed for a cluster alone

    try:
        socket.create_connection((host, int(port)), 10).close()
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or "no such port"
        raise UserError(f"--ray {address}: {why}; start a cluster: ray start --head --port {port}") from None

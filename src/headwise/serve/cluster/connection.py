"""Connection to a Ray cluster, or to a local one, and its machines."""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwise.errors import UserError, first_line


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
        from ray.exceptions import AuthenticationError, RayError
    except ImportError:
        raise UserError('--ray needs Ray: pip install "headwise[ray]"') from None
    if ray.is_initialized():
        yield ray
        return
    _check_reachable(address)
    _set_token_mode(ray, address)
    try:
        if address:
            _check_token(ray, address)
        ray.init(address or "local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except AuthenticationError:
        why = "this machine has another one" if _has_token() else "this machine has none"
        fix = "copy ~/.ray/auth_token from the first machine, or set RAY_AUTH_TOKEN"
        raise UserError(f"--ray {address}: the cluster requires its token, and {why}; {fix}") from None
    except (RayError, ConnectionError, RuntimeError, ValueError) as error:
        raise UserError(f"--ray {address}: {first_line(error)}; start a cluster: ray start --head") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _set_token_mode(ray: Any, address: str) -> None:
    """Set Ray's variables for the token.

    Ray (2.60) uses a token that the user has for new clusters and for "auto", but for HOST:PORT only in "token" mode.
    For a temporary cluster, it would write a new token to ~/.ray, which every later `ray start` of this user would
    require. The token of such a cluster is kept in the environment.
    """
    if not address:
        if not _has_token():
            os.environ["RAY_AUTH_TOKEN"] = os.urandom(32).hex()
    elif _has_token():
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        ray._raylet.Config.initialize("")  # it has read the variables when it was imported


def _has_token() -> bool:
    path = os.environ.get("RAY_AUTH_TOKEN_PATH") or "~/.ray/auth_token"
    return bool(os.environ.get("RAY_AUTH_TOKEN")) or Path(path).expanduser().is_file()


def _check_token(ray: Any, address: str) -> None:
    """An `AuthenticationError` at once if the cluster requires another token: `ray.init` would retry for 20 seconds."""
    if os.environ.get("RAY_AUTH_MODE") == "token" and not _has_token():
        raise ray.exceptions.AuthenticationError("there is no token")  # the client would end this process
    if not address.startswith("ray://"):
        with _without_standard_error():  # the client prints warnings to it
            if target := ray._private.services.canonicalize_bootstrap_address(address):
                ray._raylet.GcsClient(address=target)


@contextmanager
def _without_standard_error() -> Iterator[None]:
    """Inside, nothing is written to the file descriptor of standard error, also not by other languages."""
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def this_node(ray: Any) -> str:
    """The id of this machine in the cluster."""
    return ray.get_runtime_context().get_node_id()


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

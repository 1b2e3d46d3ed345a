"""`headwise serve` as a Ray Serve deployment: replicas of the server behind Ray's proxy.

A replica is the ASGI application that also runs without Ray, with its own models and queues. See `headwise.serve` for
its responses.
"""

import logging
import shutil
import signal
import socket
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from headwise.errors import UserError, first_line
from headwise.models.load import load_translator
from headwise.serve.access import log_event
from headwise.serve.cluster.connection import ray_connection, this_node
from headwise.serve.cluster.folders import ClusterFolder, cluster_folder
from headwise.serve.hosts import is_loopback
from headwise.serve.models import ServedModel
from headwise.serve.server import ServerSettings, application
from headwise.text.language_codes import LanguagePair

MAX_ONGOING_REQUESTS = 10_000  # requests per replica; it limits its queue itself


@dataclass(frozen=True)
class Replica:
    """The settings from which a replica is built on any machine."""

    models: tuple[tuple[ClusterFolder, tuple[LanguagePair, ...], dict[str, Any]], ...]  # with their search settings
    device: str
    keeps: bool  # load models before the first request
    settings: ServerSettings
    folder: str  # of translated files, shared by the replicas of a machine

    def application(self) -> Any:
        """The ASGI application."""

        folders = {folder.path: folder for folder, _, _ in self.models}

        def load(path: str) -> Any:
            return load_translator(folders[path].on_this_machine(), self.device)

        models = [
            ServedModel(Path(folder.path), language_pairs, load, settings, load(folder.path) if self.keeps else None)
            for folder, language_pairs, settings in self.models
        ]
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        return application(models, self.settings, Path(self.folder))


def serve_replicas(
    address: str, models: Sequence[ServedModel], device: str, keeps: bool, settings: ServerSettings, count: int
) -> None:
    """Run until SIGTERM (a normal end) or Ctrl-C (`KeyboardInterrupt`).

    Raises:
        UserError: Ray is not installed, no cluster is at `address`, or the port is not available.
    """
    folder, host = tempfile.mkdtemp(prefix="headwise-"), settings.access.host
    with ray_connection(address) as ray:
        here = this_node(ray)
        known = tuple(
            (cluster_folder(model.path, here), model.language_pairs, dict(model.settings)) for model in models
        )
        gpu = device != "cpu" and ray.cluster_resources().get("GPU", 0) >= 1
        replica = Replica(known, "cuda" if gpu else "cpu", keeps, settings, folder)
        port = settings.port or _free_port(host)
        try:
            _start(replica, host, port, count, gpu)
            pairs = ["-".join(pair) for model in models for pair in model.language_pairs]
            log_event(event="serving", url=f"http://{host}:{port}/", languages=pairs, replicas=count)
            _wait_for_sigterm()
        finally:
            from ray import serve

            serve.shutdown()
            shutil.rmtree(folder, ignore_errors=True)
    log_event(event="ended")


def _start(replica: Replica, host: str, port: int, count: int, gpu: bool) -> None:
    from ray import serve

    def build() -> Any:  # Ray calls a function in the replica, not a method
        return replica.application()

    where = "HeadOnly" if is_loopback(host) else "EveryNode"
    logging.getLogger("ray.serve").setLevel(logging.WARNING)  # the log has lines of JSON
    serve.start(proxy_location=where, http_options={"host": host, "port": port})
    deployment = serve.deployment(
        name="translator",
        num_replicas=count,
        max_ongoing_requests=MAX_ONGOING_REQUESTS,
        graceful_shutdown_timeout_s=replica.settings.drain,
        ray_actor_options={"num_cpus": 0 if gpu else 1, "num_gpus": int(gpu)},
    )(serve.ingress(build)())
    try:
        serve.run(deployment.bind(), name="headwise", route_prefix="/")
    except RuntimeError as error:
        raise UserError(f"--ray: the replicas do not start: {first_line(error)}") from None


def _wait_for_sigterm() -> None:
    stopped = Event()
    before = signal.signal(signal.SIGTERM, lambda number, frame: stopped.set())
    try:
        while not stopped.wait(1):  # an endless wait would block Ctrl-C
            pass
    finally:
        signal.signal(signal.SIGTERM, before)


def _free_port(host: str) -> int:
    with socket.socket() as made:
        made.bind((host, 0))
        return made.getsockname()[1]

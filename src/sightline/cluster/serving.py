"""`sightline serve` as a deployment of Ray Serve: as many replicas of the server as one asks for, behind its proxy.

A replica is the ASGI application that runs without Ray, with its own models and its own line. Not here: what it answers
(`sightline.serve`).
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

from sightline.cluster.connection import ray_connection
from sightline.errors import UserError
from sightline.models.load import load_translator
from sightline.serve.access import log_event
from sightline.serve.models import LanguagePair, ServedModel
from sightline.serve.server import ServerSettings, application

MAX_ONGOING_REQUESTS = (
    10_000  # requests of a replica: what is too much it says itself, and sentences of many share a batch
)


@dataclass(frozen=True)
class Replica:
    """What a replica is made of, on whatever machine."""

    models: tuple[
        tuple[str, tuple[LanguagePair, ...], dict[str, Any]], ...
    ]  # folders, language_pairs, settings of decoding
    device: str
    keeps: bool  # models are loaded before the first request
    settings: ServerSettings
    folder: str  # of translated files; replicas of one machine share it

    def application(self) -> Any:
        """The ASGI application."""

        def load(path: str) -> Any:
            return load_translator(path, self.device)

        models = [
            ServedModel(Path(path), language_pairs, load, settings, load(path) if self.keeps else None)
            for path, language_pairs, settings in self.models
        ]
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        return application(models, self.settings, Path(self.folder))


def serve_replicas(
    address: str, models: Sequence[ServedModel], device: str, keeps: bool, settings: ServerSettings, count: int
) -> None:
    """Answer until SIGTERM (a normal end) or Ctrl-C (`KeyboardInterrupt`).

    Raises:
        UserError: Ray is not installed, no cluster is at `address`, or the port cannot be had.
    """
    folder, host = tempfile.mkdtemp(prefix="sightline-"), settings.access.host
    known = tuple((str(model.path.absolute()), model.language_pairs, dict(model.settings)) for model in models)
    with ray_connection(address) as ray:
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

    def build() -> Any:  # a function, and not a method, is what Ray calls in the replica
        return replica.application()

    where = "HeadOnly" if host in ("127.0.0.1", "localhost", "::1") else "EveryNode"
    logging.getLogger("ray.serve").setLevel(logging.WARNING)  # the log is lines of JSON
    serve.start(proxy_location=where, http_options={"host": host, "port": port})
    deployment = serve.deployment(
        name="translator",
        num_replicas=count,
        max_ongoing_requests=MAX_ONGOING_REQUESTS,
        graceful_shutdown_timeout_s=replica.settings.drain,
        ray_actor_options={"num_cpus": 0 if gpu else 1, "num_gpus": int(gpu)},
    )(serve.ingress(build)())
    try:
        serve.run(deployment.bind(), name="sightline", route_prefix="/")
    except RuntimeError as error:
        raise UserError(f"--ray: the replicas do not start: {str(error).splitlines()[0]}") from None


def _wait_for_sigterm() -> None:
    told = Event()
    before = signal.signal(signal.SIGTERM, lambda number, frame: told.set())
    try:
        while not told.wait(1):  # a wait without end would keep Ctrl-C waiting, too
            pass
    finally:
        signal.signal(signal.SIGTERM, before)


def _free_port(host: str) -> int:
    with socket.socket() as made:
        made.bind((host, 0))
        return made.getsockname()[1]

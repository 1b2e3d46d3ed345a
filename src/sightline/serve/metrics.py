"""What is counted, for Prometheus: requests, how long they took, what waits, how full batches are.

No text, and no label that a client chooses. Not here: who counts when (`routes`, `gate`).
"""

from collections.abc import Iterable, Sequence
from typing import Any

from sightline.serve.models import SentenceTranslation, ServedModel

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """One server's."""

    def __init__(self, models: Sequence[ServedModel], paths: Iterable[str]) -> None:
        """`paths` are those that requests are counted by; all others are one."""
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry, self.paths = CollectorRegistry(), frozenset(paths)
        about: dict[str, Any] = {"registry": self.registry, "namespace": "sightline"}
        self.requests = Counter("requests", "Requests answered", ("path", "status"), **about)
        latency = "From the first byte of a request to the last of its answer"
        self.latency = Histogram("request_seconds", latency, ("path",), buckets=SECONDS, **about)
        self.batch = Histogram("batch_sentences", "Sentences of a batch", ("model",), buckets=SENTENCES, **about)
        self.computing = Histogram("batch_seconds", "Computing a batch", ("model",), buckets=SECONDS, **about)
        self.read = Counter("source_pieces", "Pieces read", **about)
        self.written = Counter("target_pieces", "Pieces written", **about)
        waiting = Gauge("waiting_sentences", "Sentences in line", ("model",), **about)
        loaded = Gauge("model_loaded", "1 while it is in memory", ("model",), **about)
        for model in models:
            name = self.name_of(model)
            waiting.labels(name).set_function(lambda model=model: model.line.waiting if model.line else 0)
            loaded.labels(name).set_function(lambda model=model: int(model.is_loaded))

    def name_of(self, model: ServedModel) -> str:
        """Of a model in labels: its languages."""
        return " ".join("-".join(direction) for direction in model.directions)

    def batched(self, model: ServedModel, sentences: int, seconds: float) -> None:
        """One batch was computed."""
        self.batch.labels(self.name_of(model)).observe(sentences)
        self.computing.labels(self.name_of(model)).observe(seconds)

    def translated(self, found: Sequence[SentenceTranslation]) -> None:
        """These were asked for."""
        self.read.inc(sum(one.n_pieces[0] for one in found))
        self.written.inc(sum(one.n_pieces[1] for one in found))

    def ended(self, path: str, status: int, seconds: float) -> None:
        """One request."""
        folder = path[: path.rfind("/") + 1]
        known = next((one for one in (path, folder) if one in self.paths and (one != "/" or path == "/")), "other")
        self.requests.labels(known, status).inc()
        self.latency.labels(known).observe(seconds)

    def text(self) -> tuple[bytes, str]:
        """As Prometheus reads them, and the type of that."""
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        return generate_latest(self.registry), CONTENT_TYPE_LATEST

"""Prometheus metrics: requests, latencies, queued sentences, batch sizes, usage by API key.

They contain no text, no key, and no label from a client. See `routes` and `access` for the calls that are counted.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from headwise.documents.segments import SentenceTranslation
from headwise.serve.models import ServedModel

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """The metrics of a server."""

    def __init__(self, models: Sequence[ServedModel], paths: Iterable[str]) -> None:
        """Requests are counted by `paths`; all others together."""
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry, self.paths = CollectorRegistry(), frozenset(paths)
        about: dict[str, Any] = {"registry": self.registry, "namespace": "headwise"}
        self.requests = Counter("requests", "Requests answered", ("path", "status"), **about)
        latency = "From the first byte of a request to the last of its answer"
        self.latency = Histogram("request_seconds", latency, ("path",), buckets=SECONDS, **about)
        self.batch = Histogram("batch_sentences", "Sentences per batch", ("model",), buckets=SENTENCES, **about)
        self.computing = Histogram("batch_seconds", "Time per batch", ("model",), buckets=SECONDS, **about)
        self.read = Counter("source_pieces", "Source tokens", **about)
        self.written = Counter("target_pieces", "Target tokens", **about)
        self.hits = Counter("cache_hits", "Sentences found in the cache", ("model",), **about)
        self.misses = Counter("cache_misses", "Sentences not found in the cache", ("model",), **about)
        of_key = ("key",)  # its name
        self.key_requests = Counter("key_requests", "Requests with an API key", of_key, **about)
        self.key_characters = Counter("key_characters", "Characters of its texts", of_key, **about)
        waiting = Gauge("waiting_sentences", "Queued sentences", ("model",), **about)
        loaded = Gauge("model_loaded", "1 while it is in memory", ("model",), **about)
        for model in models:
            name = self.name_of(model)
            waiting.labels(name).set_function(lambda model=model: model.queue.waiting if model.queue else 0)
            loaded.labels(name).set_function(lambda model=model: int(model.is_loaded))

    def name_of(self, model: ServedModel) -> str:
        """The label of a model: its language pairs."""
        return " ".join("-".join(pair) for pair in model.language_pairs)

    def batched(self, model: ServedModel, sentences: int, seconds: float) -> None:
        """Record a batch."""
        self.batch.labels(self.name_of(model)).observe(sentences)
        self.computing.labels(self.name_of(model)).observe(seconds)

    def translated(self, sentences: Sequence[SentenceTranslation]) -> None:
        """Record sentences."""
        self.read.inc(sum(one.n_tokens[0] for one in sentences))
        self.written.inc(sum(one.n_tokens[1] for one in sentences))

    def looked_up(self, model: ServedModel, is_hit: bool) -> None:
        """Record a sentence that was looked up in the cache."""
        (self.hits if is_hit else self.misses).labels(self.name_of(model)).inc()

    def key_used(self, name: str, requests: int, characters: int) -> None:
        """Record the usage of an API key."""
        self.key_requests.labels(name).inc(requests)
        self.key_characters.labels(name).inc(characters)

    def ended(self, path: str, status: int, seconds: float) -> None:
        """Record a request."""
        folder = path[: path.rfind("/") + 1]
        known = next((one for one in (path, folder) if one in self.paths and (one != "/" or path == "/")), "other")
        self.requests.labels(known, status).inc()
        self.latency.labels(known).observe(seconds)

    def text(self) -> tuple[bytes, str]:
        """The metrics in Prometheus' format, and its content type."""
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        return generate_latest(self.registry), CONTENT_TYPE_LATEST

"""How well a text is found among many by its vector."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

ROWS = 256  # queries compared at once


@dataclass(frozen=True)
class RetrievalReport:
    """Each query looks for the text that belongs to it, among all that there are, by cosine."""

    accuracy: float  # share of queries that find it first
    recall_at_10: float  # share that find it among the first ten
    mrr: float  # mean of 1 / the place where it is found
    queries: int
    texts: int

    def as_json(self) -> dict[str, Any]:
        """All of it."""
        return asdict(self)

    def render(self) -> str:
        """One line for people."""
        found = f"found first {self.accuracy:.2%}, among ten {self.recall_at_10:.2%}"
        rank = f"mean reciprocal rank {self.mrr:.4f}"
        return f"{found}, {rank} ({self.queries:,} queries among {self.texts:,} texts)"


def retrieval_report(
    queries: Float[np.ndarray, "queries width"], texts: Float[np.ndarray, "texts width"], wanted: Sequence[int]
) -> RetrievalReport:
    """`wanted` is the number of each query's text. Of texts that are equally near it counts as the last.

    >>> report = retrieval_report(np.eye(2), np.array([[1.0, 0.1], [0.9, 0.8]]), [0, 0])
    >>> report.accuracy, report.mrr
    (0.5, 0.75)
    """
    places = np.empty(len(queries))
    queries, texts = _unit(queries), _unit(texts)
    for start in range(0, len(queries), ROWS):
        rows = slice(start, start + ROWS)
        near = queries[rows] @ texts.T
        places[rows] = (near >= np.take_along_axis(near, np.array(wanted[rows])[:, None], 1)).sum(1)
    return RetrievalReport(
        float((places == 1).mean()), float((places <= 10).mean()), float((1 / places).mean()), len(queries), len(texts)
    )


def _unit(vectors: Float[np.ndarray, "rows width"]) -> Float[np.ndarray, "rows width"]:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)

"""Retrieval metrics: how well a text is found among many by its embedding."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from headwise.text.files.sources import count_of

ROWS = 256  # queries compared at once


@dataclass(frozen=True)
class RetrievalReport:
    """Each query ranks all texts by cosine similarity; one of them belongs to it."""

    accuracy: float  # share of queries whose text ranks first
    recall_at_10: float  # share whose text ranks among the first ten
    mrr: float  # mean of 1 / rank
    queries: int
    texts: int

    def as_json(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)

    def render(self) -> str:
        """One line for people."""
        found = f"found first {self.accuracy:.2%}, among ten {self.recall_at_10:.2%}"
        rank = f"mean reciprocal rank {self.mrr:.4f}"
        return f"{found}, {rank} ({self.queries:,} queries among {count_of(self.texts, 'text')})"


def retrieval_report(
    queries: Float[np.ndarray, "queries width"], texts: Float[np.ndarray, "texts width"], wanted: Sequence[int]
) -> RetrievalReport:
    """`wanted` is the index of each query's text, which ranks last among equally similar ones.

    >>> report = retrieval_report(np.eye(2), np.array([[1.0, 0.1], [0.9, 0.8]]), [0, 0])
    >>> report.accuracy, report.mrr
    (0.5, 0.75)
    """
    ranks = np.empty(len(queries))
    queries, texts = _unit(queries), _unit(texts)
    for start in range(0, len(queries), ROWS):
        rows = slice(start, start + ROWS)
        near = queries[rows] @ texts.T
        ranks[rows] = (near >= np.take_along_axis(near, np.array(wanted[rows])[:, None], 1)).sum(1)
    return RetrievalReport(
        float((ranks == 1).mean()), float((ranks <= 10).mean()), float((1 / ranks).mean()), len(queries), len(texts)
    )


def _unit(vectors: Float[np.ndarray, "rows width"]) -> Float[np.ndarray, "rows width"]:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)

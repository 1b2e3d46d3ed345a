"""A measure of translation quality and its result."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from headwise.errors import UserError
from headwise.text.files.sources import count_of

References = Sequence[str] | Sequence[Sequence[str]]


@dataclass(frozen=True)
class Length:
    """Length of the output compared with the references, in BLEU's tokens; of several references the nearest counts."""

    hypothesis: int
    reference: int
    brevity_penalty: float  # factor of BLEU, 0 to 1

    @property
    def ratio(self) -> float:
        """Output / references; below 1 the output is shorter."""
        return self.hypothesis / self.reference if self.reference else 0.0

    def as_json(self) -> dict[str, float]:
        """`{"ratio": 0.95, "hypothesis": 950, "reference": 1000, "brevity_penalty": 0.949}`."""
        return {"ratio": self.ratio, **asdict(self)}


@dataclass(frozen=True)
class Score:
    """A score, 0 to 100, with its signature. Higher is better, except for TER, which counts edits."""

    name: str
    score: float
    signature: str
    length: Length | None = None  # of BLEU


@dataclass(frozen=True)
class MeanScore:
    """The score of a corpus under a metric that rates lines one by one."""

    score: float

    @classmethod
    def of(cls, stats: NDArray[np.float64]) -> "MeanScore":
        """The mean, times 100, of a sum of scores and their number."""
        return cls(100.0 * float(stats[0] / stats[1]))


@dataclass
class Signature:
    """The signature of a score, in the format of sacreBLEU."""

    parts: dict[str, Any] = field(default_factory=dict[str, Any])

    def update(self, key: str, value: Any) -> None:
        """Add an item."""
        self.parts[key] = value

    def __str__(self) -> str:
        return "|".join(f"{key}:{value}" for key, value in self.parts.items())


@dataclass(frozen=True)
class Measure:
    """A metric of sacreBLEU, `rouge.Rouge` or `comet.Comet`, the preprocessing of each line, and its part of the
    signature.
    """

    name: str
    metric: Any
    prepare: Callable[[str], str] = str
    steps: str = ""
    reads_sources: bool = False

    def statistics(
        self, hypotheses: Sequence[str], references: References, sources: Sequence[str] = ()
    ) -> NDArray[np.float64]:
        """The statistics of each line, (lines, figures), whose sum gives the corpus score.

        `sources` are for a metric with `reads_sources`. `UserError` for counts that differ.
        """
        streams = _reference_streams(hypotheses, references)
        lines = [self.prepare(line) for line in hypotheses]
        prepared = [[self.prepare(line) for line in stream] for stream in streams]
        more = [sources] if self.reads_sources else []
        return np.array(self.metric._extract_corpus_statistics(lines, prepared, *more), dtype=float)

    def score(self, statistics: NDArray[np.float64]) -> Score:
        """The score of the corpus that `statistics`, (lines, figures), was last called for."""
        result = self.metric._compute_score_from_stats(statistics.sum(0))
        length = (
            Length(int(result.sys_len), int(result.ref_len), float(result.bp))
            if hasattr(result, "bp")  # BLEU's
            else None
        )
        return Score(self.name, float(result.score), self.signature(), length)

    def signature(self, **more: Any) -> str:
        """sacreBLEU's signature, once the metric has seen references; with `more` items, such as `seed=1`."""
        signature = self.metric.get_signature()
        for key, value in more.items():
            signature.update(key, value)
        return f"{signature}|{self.steps}" if self.steps else str(signature)


def scores_as_json(scores: dict[str, Score]) -> dict[str, dict[str, float | str]]:
    """`{"BLEU": {"score": 41.02, "signature": "nrefs:1|..."}, ...}`, for machines."""
    return {name: {"score": score.score, "signature": score.signature} for name, score in scores.items()}


def _reference_streams(hypotheses: Sequence[str], references: References) -> list[list[str]]:
    """References as a list of lists, each checked to be as long as the hypotheses."""
    if not hypotheses:
        raise UserError("nothing to evaluate: there are no hypotheses")
    streams = _streams(references)
    for number, stream in enumerate(streams, start=1):
        if len(stream) != len(hypotheses):
            which = f"reference {number} has" if len(streams) > 1 else "the reference has"
            raise UserError(
                f"{len(hypotheses)} hypotheses but {which} {count_of(len(stream), 'line')}; "
                "line n of one must belong to line n of the other"
            )
    return streams


def _streams(references: References) -> list[list[str]]:
    return [list(stream) for stream in ([references] if _is_text(references) else references)]


def _is_text(references: References) -> TypeGuard[Sequence[str]]:
    """Whether this is one list of references rather than several."""
    return all(isinstance(line, str) for line in references)

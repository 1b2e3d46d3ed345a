"""BLEU and chrF++ of captions against all reference captions of a picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headwise.evaluate.bleu import corpus_scores
from headwise.evaluate.measure import Score, scores_as_json
from headwise.text.files.sources import count_of

METRICS = ("BLEU", "chrF++")


@dataclass(frozen=True)
class CaptionReport:
    """Scores of a test set."""

    scores: dict[str, Score]
    pictures: int
    captions: int  # references

    def as_json(self) -> dict[str, Any]:
        """`{"BLEU": {"score": ..., "signature": ...}, ..., "pictures": n, "captions": n}`."""
        return {**scores_as_json(self.scores), "pictures": self.pictures, "captions": self.captions}

    def render(self) -> str:
        """A report for people."""
        width = max(map(len, self.scores))
        lines = [f"{name:<{width}}  {one.score:6.2f}   {one.signature}" for name, one in self.scores.items()]
        return "\n".join([*lines, f"{count_of(self.pictures, 'picture')}, {count_of(self.captions, 'caption')}"])


def caption_report(
    written: Sequence[str], references: Sequence[Sequence[str]], metrics: Sequence[str] = METRICS
) -> CaptionReport:
    """Scores of one caption `written` per picture against its reference captions, at least one each.

    A picture with fewer captions than others repeats its first one, which changes neither figure.

    >>> round(caption_report(["a dog runs fast"], [["a cat", "a dog runs fast"]]).scores["BLEU"].score)
    100
    """
    most = max(map(len, references), default=1)
    streams = [[own[i] if i < len(own) else own[0] for own in references] for i in range(most)]
    scores = corpus_scores(written, streams, metrics=metrics)
    return CaptionReport(scores, len(written), sum(map(len, references)))

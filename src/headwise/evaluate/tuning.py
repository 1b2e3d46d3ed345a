"""Choose the best length penalty on validation data, by BLEU.

Every value needs a search of its own. Reranking an n-best list would be cheaper but not the same, because the penalty
influences which hypotheses a beam finishes and when it ends (`core/search.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headwise.errors import UserError
from headwise.evaluate.bleu import corpus_scores
from headwise.evaluate.measure import Score
from headwise.evaluate.report import Translates, hypotheses_of

COARSE = (0.0, 0.4, 0.8, 1.2, 1.6, 2.0)
FINE = (0.2, 0.1)  # steps to either side of the best so far


@dataclass(frozen=True)
class Tuning:
    """BLEU for each value, in ascending order."""

    scores: Mapping[float, Score]
    before: Any  # the settings of the search, with the old value

    @property
    def best(self) -> float:
        """The value with the highest BLEU; among equals the one nearest to the model's own."""
        own = self.before.length_penalty
        return max(self.scores, key=lambda value: (self.scores[value].score, -abs(value - own)))

    @property
    def decoding(self) -> Any:
        """The model's settings with the best value."""
        return replace(self.before, length_penalty=self.best)

    def describe(self, files: Sequence[str]) -> str:
        """The choice in a line for a model card."""
        bleu = self.scores[self.best].score
        return (
            f"length penalty {self.best}, the best of {len(self.scores)} on {', '.join(files)}: "
            f"BLEU {bleu:.2f} (beam {self.before.beam_size})"
        )

    def as_json(self) -> dict[str, Any]:
        """`{"length_penalty": {"best": 1.0, "before": 0.6}, "beam_size": 4, "signature": ..., "tried": [...]}`."""
        tried = [
            {"length_penalty": value, "BLEU": score.score, **(score.length.as_json() if score.length else {})}
            for value, score in self.scores.items()
        ]
        return {
            "length_penalty": {"best": self.best, "before": self.before.length_penalty},
            "beam_size": self.before.beam_size,
            "signature": self.scores[self.best].signature,
            "tried": tried,
        }

    def render(self) -> str:
        """A table for people."""
        lines = ["length penalty     BLEU   length ratio   brevity penalty"]
        for value, score in self.scores.items():
            assert score.length
            marks = ["best"] if value == self.best else []
            marks += ["the model's own"] if value == self.before.length_penalty else []
            figures = f"{score.score:6.2f}   {score.length.ratio:12.3f}   {score.length.brevity_penalty:15.3f}"
            lines.append(f"{value:14g}   {figures}   {', '.join(marks)}".rstrip())
        return "\n".join([*lines, f"beam {self.before.beam_size}, {self.scores[self.best].signature}"])


def tune_length_penalty(
    model: Translates,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    tokenize: str = "",
    overrides: Mapping[str, Any] | None = None,
) -> Tuning:
    """Translate `sources` with several length penalties and score each against the references.

    First come coarse steps over the usual range and the model's own value, then finer ones around the best.

    Raises:
        UserError: the model does not use beam search.
    """
    settings = dict(overrides or {})
    before = model.settings(**settings)
    if before.sample or before.beam_size == 1:
        raise UserError(
            f"decode.beam_size = {before.beam_size}: a length penalty ranks what a beam finds, and there is nothing to "
            "tune without one: give --beam-size 4 or more"
        )
    scores: dict[float, Score] = {}

    def attempt(values: Sequence[float]) -> Tuning:
        for value in values:
            if value >= 0 and value not in scores:
                hypotheses = hypotheses_of(model, sources, {**settings, "length_penalty": value})
                scores[value] = corpus_scores(hypotheses, references, ["BLEU"], tokenize)["BLEU"]
        return Tuning(dict(sorted(scores.items())), before)

    tuning = attempt([*COARSE, before.length_penalty])
    for step in FINE:
        tuning = attempt([round(tuning.best - step, 2), round(tuning.best + step, 2)])
    return tuning

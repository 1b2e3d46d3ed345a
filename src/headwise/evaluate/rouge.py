"""ROUGE-1, ROUGE-2 and ROUGE-L (Lin 2004, aclanthology.org/W04-1013) of summaries, computed by Google's `rouge-score`.

F1 of the words, word pairs, or longest common subsequence that a summary shares with its reference, after Porter
stemming. The best of several references counts; a corpus has the mean over its lines. Words are runs of a to z and
digits, as in ROUGE-1.5.5: this is a metric for English.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headwise.errors import UserError
from headwise.evaluate.measure import MeanScore, Signature


class Rouge:
    """A ROUGE metric with the methods that `measure.Measure` calls."""

    def __init__(self, name: str) -> None:
        try:
            from rouge_score.rouge_scorer import RougeScorer
        except ImportError:
            raise UserError(f'--metric {name} needs rouge-score: pip install "headwise[rouge]"') from None
        self._kind = name.lower().replace("-", "").replace("rougel", "rougeL")
        self._scorer = RougeScorer([self._kind], use_stemmer=True)
        self._references = 0

    def _extract_corpus_statistics(self, lines: Sequence[str], streams: Sequence[Sequence[str]]) -> NDArray[np.float64]:
        """F1 of each line, and 1: their sums give a mean."""
        self._references = len(streams)
        given = zip(lines, zip(*streams, strict=True), strict=True)
        return np.array([[self._f1(number, line, of_it), 1.0] for number, (line, of_it) in enumerate(given, start=1)])

    def _f1(self, number: int, line: str, references: Sequence[str]) -> float:
        if not any(self._scorer._tokenizer.tokenize(reference) for reference in references):
            raise UserError(
                f"reference, line {number}: has no word of a to z or digits, which are all that ROUGE counts: "
                f"{references[0][:40]!r}; use chrF++ for languages in other scripts"
            )
        return float(self._scorer.score_multi(references, line)[self._kind].fmeasure)

    def _compute_score_from_stats(self, stats: NDArray[np.float64]) -> MeanScore:
        return MeanScore.of(stats)

    def get_signature(self) -> Signature:
        """The signature, once references are known."""
        from importlib.metadata import version  # takes 10 ms, which a translation need not wait for

        return Signature(
            {"nrefs": self._references, "case": "lc", "stem": "porter", "f": 1, "rouge-score": version("rouge-score")}
        )

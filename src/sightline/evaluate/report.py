"""An evaluation from model to report: translate a test set, score it, say how it was decoded."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, runtime_checkable

from sightline.config import DecodeConfig
from sightline.decode.translator import Translation, override
from sightline.evaluate.bleu import (
    Comparison,
    Score,
    as_json,
    comparison_as_json,
    corpus_scores,
    multi30k_tokenized_bleu,
    paired_bootstrap,
)


@runtime_checkable
class Translates(Protocol):
    """What an evaluation needs of a model."""

    @property
    def decode_config(self) -> DecodeConfig: ...
    def translate(self, texts: Sequence[str], prefix: str = "", **overrides: Any) -> list[Translation]: ...


@dataclass(frozen=True)
class Report:
    """Scores of a test set, and everything needed to get them again."""

    scores: dict[str, Score]
    comparisons: dict[str, Comparison]  # against another model; empty without one
    decoding: DecodeConfig
    n_sentences: int
    hypotheses: list[str]

    def as_json(self) -> dict[str, Any]:
        """`{"BLEU": {"score": ..., "signature": ...}, ..., "decoding": {...}, "sentences": n}`."""
        report: dict[str, Any] = as_json(self.scores)
        report["decoding"] = asdict(self.decoding)
        report["sentences"] = self.n_sentences
        if self.comparisons:
            report["against"] = comparison_as_json(self.comparisons)
        return report


def evaluate_model(
    model: Translates,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    other: Translates | None = None,
    multi30k: str | None = None,
    tokenize: str = "13a",
    overrides: Mapping[str, Any] | None = None,
) -> Report:
    """Translate `sources` and score the output against one or several `references`, detokenised.

    `other` is compared by paired bootstrap; `multi30k` is the target language whose tokenised, lowercased figure is
    wanted beside the others.
    """
    overrides = overrides or {}
    streams = [list(reference) for reference in references]
    hypotheses = [translation.text for translation in model.translate(sources, **overrides)]
    scores = corpus_scores(hypotheses, streams, tokenize=tokenize)
    if multi30k:
        figure = multi30k_tokenized_bleu(hypotheses, streams, multi30k)
        scores[figure.name] = figure
    comparisons: dict[str, Comparison] = {}
    if other:
        others = [translation.text for translation in other.translate(sources, **overrides)]
        comparisons = paired_bootstrap(hypotheses, others, streams, tokenize=tokenize)
    decoding = override(model.decode_config, dict(overrides))
    return Report(scores, comparisons, decoding, len(sources), hypotheses)


def render(report: Report) -> str:
    """A report for people."""
    width = max(map(len, report.scores))
    lines = [f"{name:<{width}}  {score.score:6.2f}   {score.signature}" for name, score in report.scores.items()]
    d = report.decoding
    search = f"sampled, seed {d.seed}" if d.sample else f"beam {d.beam_size}, length penalty {d.length_penalty}"
    lines.append(f"{report.n_sentences:,} sentences, {search}")
    for name, c in report.comparisons.items():
        lines.append(
            f"{name}: {c.a.score:.2f} (95 % interval {c.a.mean:.2f} ± {c.a.ci:.2f}) against {c.b.score:.2f} "
            f"({c.b.mean:.2f} ± {c.b.ci:.2f}), p = {c.p_value:.4f}"
        )
    return "\n".join(lines)

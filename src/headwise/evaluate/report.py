"""Evaluation of a model: translate a test set and score it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, runtime_checkable

from headwise.evaluate.bleu import METRICS, measures
from headwise.evaluate.measure import Score, scores_as_json
from headwise.evaluate.significance import Comparison, compare_two, comparison_as_json
from headwise.runtime.search.translator import Translation
from headwise.text.files.sources import count_of


@runtime_checkable
class Translates(Protocol):
    """The methods of a model that an evaluation calls."""

    def settings(self, **overrides: Any) -> Any: ...  # of one call: `SearchSettings`, or a pretrained model's own
    def translate(self, texts: Sequence[str], **overrides: Any) -> Sequence[Translation]: ...


# Arguments of `translate` that are not settings of the search.
OF_TRANSLATE = ("prefix", "draft", "glossary", "source_language", "target_language", "instruction")


@dataclass(frozen=True)
class TranslationReport:
    """Scores of a test set, and everything needed to reproduce them."""

    scores: dict[str, Score]
    comparisons: dict[str, Comparison]  # with other translations, if there are any
    decoding: Any  # `SearchSettings`, or a pretrained model's own settings; None for translations from a file
    n_sentences: int
    hypotheses: list[str]

    def as_json(self) -> dict[str, Any]:
        """`{"BLEU": {"score": ..., "signature": ...}, ..., "length": {"BLEU": {"ratio": ..., "brevity_penalty": ...}},
        "decoding": {...}, "sentences": n}`.
        """
        report: dict[str, Any] = scores_as_json(self.scores)
        report["length"] = {name: score.length.as_json() for name, score in self.scores.items() if score.length}
        if self.decoding:
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
    tokenize: str = "",
    overrides: Mapping[str, Any] | None = None,
    metrics: Sequence[str] = METRICS,
) -> TranslationReport:
    """Translate `sources` and score the detokenized output against one or several `references`.

    `other` is compared by paired bootstrap; `multi30k` is the target language for the tokenized, lowercased figure of
    that data set.
    """
    # Missing packages are reported before anything is translated.
    measures(metrics, tokenize, multi30k=multi30k or "", references=references)
    settings = dict(overrides or {})
    others = hypotheses_of(other, sources, settings) if other else None
    decoding = model.settings(**{name: value for name, value in settings.items() if name not in OF_TRANSLATE})
    written = hypotheses_of(model, sources, settings)
    return evaluate_text(written, references, others, multi30k, tokenize, decoding, metrics, sources)


def hypotheses_of(model: Translates, sources: Sequence[str], overrides: Mapping[str, Any]) -> list[str]:
    """The translations of a test set."""
    return [translation.text for translation in model.translate(sources, **overrides)]


def evaluate_text(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    others: Sequence[str] | None = None,
    multi30k: str | None = None,
    tokenize: str = "",
    decoding: Any = None,
    metrics: Sequence[str] = METRICS,
    sources: Sequence[str] = (),
) -> TranslationReport:
    """`evaluate_model` for existing translations, and `others` to compare with; COMET reads `sources`, too."""
    streams = [list(reference) for reference in references]
    scores, comparisons = {}, {}
    for measure in measures(metrics, tokenize, multi30k=multi30k or "", references=streams):
        statistics = measure.statistics(hypotheses, streams, sources)
        scores[measure.name] = measure.score(statistics)
        if others:
            against = measure.statistics(others, streams, sources)
            comparisons[measure.name] = compare_two(measure, statistics, against)
    return TranslationReport(scores, comparisons, decoding, len(hypotheses), list(hypotheses))


def render_report(report: TranslationReport) -> str:
    """A report for people."""
    width = max(map(len, report.scores))
    lines = []
    for name, score in report.scores.items():
        lines.append(f"{name:<{width}}  {score.score:6.2f}   {score.signature}")
        if score.length:
            lines.append(f"{'':<{width}}          {describe_length(score)}")
    lines.append(
        f"{count_of(report.n_sentences, 'sentence')}"
        + (f", {describe_search(report.decoding)}" if report.decoding else "")
    )
    for name, c in report.comparisons.items():
        lines.append(
            f"{name}: {c.a.score:.2f} (95 % interval {c.a.mean:.2f} ± {c.a.ci:.2f}) against {c.b.score:.2f} "
            f"({c.b.mean:.2f} ± {c.b.ci:.2f}), p = {c.p_value:.4f}"
        )
    return "\n".join(lines)


def describe_length(score: Score) -> str:
    """The length of the output compared with the references.

    >>> from headwise.evaluate.measure import Length
    >>> describe_length(Score("BLEU", 40.0, "", Length(950, 1000, 0.9487)))
    'length ratio 0.950 (950 of 1,000 tokens), brevity penalty 0.949'
    """
    length = score.length
    assert length
    counts = f"{length.hypothesis:,} of {count_of(length.reference, 'token')}"
    return f"length ratio {length.ratio:.3f} ({counts}), brevity penalty {length.brevity_penalty:.3f}"


def describe_search(d: Any) -> str:
    """
    >>> from headwise.config.settings import SearchSettings
    >>> describe_search(SearchSettings())
    'beam 4, length penalty 0.6'
    """
    return f"sampled, seed {d.seed}" if d.sample else f"beam {d.beam_size}, length penalty {d.length_penalty}"

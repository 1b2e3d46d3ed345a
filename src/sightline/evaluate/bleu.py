"""Corpus metrics: BLEU, chrF++ and TER as sacreBLEU computes them (Post 2018, arXiv:1804.08771), each with
the signature that reproduces it.

Text goes in as the user would read it: detokenised hypotheses against untouched references. The one exception
is `multi30k_tokenized_bleu`, which exists to stand beside a published table and must not be mixed with the
others. Producing the hypotheses is `decode`'s work; the model's own probabilities are in `score.py`.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TypeGuard

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest, Result

from sightline.errors import UserError, unknown

References = Sequence[str] | Sequence[Sequence[str]]

METRICS = ("BLEU", "chrF++", "TER")


@dataclass(frozen=True)
class Score:
    """One figure, 0 to 100, and how it was made. Higher is better, except for TER, which counts edits."""

    name: str
    score: float
    signature: str


@dataclass(frozen=True)
class Interval:
    """A system's score, and mean and half width of its 95 % interval over bootstrap samples."""

    score: float
    mean: float
    ci: float


@dataclass(frozen=True)
class Comparison:
    """Two systems under one metric; `p_value`: how often chance alone makes as large a difference."""

    name: str
    a: Interval
    b: Interval
    p_value: float
    signature: str


def corpus_scores(
    hypotheses: Sequence[str],
    references: References,
    metrics: Sequence[str] = METRICS,
    tokenize: str = "13a",
    lowercase: bool = False,
) -> dict[str, Score]:
    """BLEU, chrF++ and TER of a whole corpus, or those that `metrics` names (TER is much the slowest).

    `references` is one list of strings, or several such lists for several references, each as long as
    `hypotheses`. `tokenize` names sacreBLEU's BLEU tokenizer ("13a"; "ja-mecab", "zh" ... where words are not
    spaced); `lowercase` concerns BLEU and chrF++ only (TER ignores case by its definition). Raises
    `UserError` for counts that differ.

    >>> scores = corpus_scores(["Ein Hund rennt .", "Hallo!"], ["Ein Hund rennt .", "Hallo!"])
    >>> [(score.name, round(score.score, 1)) for score in scores.values()]
    [('BLEU', 100.0), ('chrF++', 100.0), ('TER', 0.0)]
    """
    streams = _reference_streams(hypotheses, references)
    chosen = _build_metrics(metrics, tokenize, lowercase)
    return {name: _corpus_score(name, metric, hypotheses, streams) for name, metric in chosen.items()}


def bleu_signature() -> str:
    """The signature of `corpus_scores`' BLEU with one reference.

    >>> bleu_signature().split("|version")[0]
    'nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp'
    """
    return corpus_scores(["."], ["."], metrics=["BLEU"])["BLEU"].signature


def as_json(scores: dict[str, Score]) -> dict[str, dict[str, float | str]]:
    """`{"BLEU": {"score": 41.02, "signature": "nrefs:1|..."}, ...}`, for machines."""
    return {name: {"score": score.score, "signature": score.signature} for name, score in scores.items()}


def comparison_as_json(comparisons: dict[str, Comparison]) -> dict[str, dict[str, object]]:
    """`{"BLEU": {"name": "BLEU", "a": {"score": ...}, "b": {...}, "p_value": 0.01, ...}, ...}`."""
    return {name: asdict(comparison) for name, comparison in comparisons.items()}


def multi30k_tokenized_bleu(hypotheses: Sequence[str], references: References, language: str) -> Score:
    """The tokenised, lowercased BLEU of the Multi30k literature; only for comparison with its tables.

    Both sides are prepared as the data set's own `*.lc.norm.tok.*` files (lower case, Moses'
    normalize-punctuation, Moses' tokenizer; github.com/multi30k/dataset, scripts/task1-tokenize.sh) and
    scored like `multi-bleu.perl`: sacreBLEU with no tokenizer and no smoothing. `language` is the code of the
    target language, "de" or "fr". Of the data set's own tokenised test files all German lines come out
    identical, and all French ones but one.
    """
    streams = _reference_streams(hypotheses, references)
    prepare, steps = _moses(language)
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    score = _corpus_score(
        "BLEU (Multi30k: tokenized, lowercased)",
        metric,
        [prepare(line) for line in hypotheses],
        [[prepare(line) for line in stream] for stream in streams],
    )
    return Score(score.name, score.score, f"{score.signature}|{steps}")


def paired_bootstrap(
    hypotheses_a: Sequence[str],
    hypotheses_b: Sequence[str],
    references: References,
    metrics: Sequence[str] = METRICS,
    n_samples: int = 1000,
    seed: int = 12345,
    tokenize: str = "13a",
    lowercase: bool = False,
) -> dict[str, Comparison]:
    """Is system b really different from a? Paired bootstrap (Koehn 2004, W04-3250), by sacreBLEU.

    Both systems are scored on the same `n_samples` random draws, with replacement, of as many lines as the
    corpus has. A p-value under 0.05 is the usual line; with a few hundred lines a difference of half a point
    rarely makes it.
    """
    if n_samples < 1 or seed < 1:  # sacreBLEU takes seed 0 for none, and 0 samples for its default
        raise UserError(f"n_samples and seed must be at least 1, not {n_samples} and {seed}")
    streams = _reference_streams(hypotheses_a, references)
    _reference_streams(hypotheses_b, references)
    chosen = _build_metrics(metrics, tokenize, lowercase)
    systems = [("a", hypotheses_a), ("b", hypotheses_b)]
    with _sacrebleu_seed(seed):
        test = PairedTest(systems, chosen, streams, test_type="bs", n_samples=n_samples)
        signatures, results = test()
    # sacreBLEU files the results under its own metric names; both dictionaries keep the order of `chosen`.
    rows = zip(chosen, signatures.items(), strict=True)
    return {name: _comparison(name, str(text), *results[key]) for name, (key, text) in rows}


def _comparison(name: str, signature: str, a: Result | str, b: Result | str) -> Comparison:
    assert isinstance(a, Result) and isinstance(b, Result) and b.p_value is not None
    # For equal scores sacreBLEU gives the smallest p-value, but every difference is as large as none.
    p_value = 1.0 if a.score == b.score else float(b.p_value)
    return Comparison(name, _interval(a), _interval(b), p_value, signature)


def _interval(result: Result) -> Interval:
    assert result.mean is not None and result.ci is not None
    return Interval(float(result.score), float(result.mean), float(result.ci))


def _build_metrics(names: Sequence[str], tokenize: str, lowercase: bool) -> dict[str, Metric]:
    if tokenize not in BLEU.TOKENIZERS:
        raise unknown("BLEU tokenizer", tokenize, BLEU.TOKENIZERS)
    makers: dict[str, Callable[[], Metric]] = {
        # `force` only silences a warning about text that looks tokenised already; no figure depends on it.
        "BLEU": lambda: BLEU(tokenize=tokenize, lowercase=lowercase, force=True),
        "chrF++": lambda: CHRF(word_order=2, lowercase=lowercase),
        "TER": lambda: TER(),
    }
    for name in names:
        if name not in makers:
            raise unknown("metric", name, makers)
    return {name: makers[name]() for name in names}


def _corpus_score(name: str, metric: Metric, hypotheses: Sequence[str], streams: list[list[str]]) -> Score:
    score = metric.corpus_score(hypotheses, streams).score
    return Score(name, float(score), str(metric.get_signature()))


def _reference_streams(hypotheses: Sequence[str], references: References) -> list[list[str]]:
    """References as a list of lists, after a check that every list pairs up with the hypotheses."""
    if not hypotheses:
        raise UserError("nothing to evaluate: there are no hypotheses")
    streams = [list(stream) for stream in ([references] if _is_text(references) else references)]
    for number, stream in enumerate(streams, start=1):
        if len(stream) != len(hypotheses):
            which = f"reference {number} has" if len(streams) > 1 else "the reference has"
            raise UserError(
                f"{len(hypotheses)} hypotheses but {which} {len(stream)} lines; "
                "line n of one must belong to line n of the other"
            )
    return streams


def _is_text(references: References) -> TypeGuard[Sequence[str]]:
    """Whether these are the references themselves rather than lists of them."""
    return all(isinstance(line, str) for line in references)


def _moses(language: str) -> tuple[Callable[[str], str], str]:
    """The preparation of a line, and a description of it in the manner of a signature."""
    try:
        import sacremoses
    except ImportError:
        raise UserError('the Multi30k figure needs sacremoses: pip install "sightline[moses]"') from None
    normalizer = sacremoses.MosesPunctNormalizer(lang=language)
    tokenizer = sacremoses.MosesTokenizer(lang=language)

    def prepare(line: str) -> str:
        return str(tokenizer.tokenize(normalizer.normalize(line.lower()), return_str=True))

    return prepare, f"prep:lc+norm+tok|moses:{language}|sacremoses:{sacremoses.__version__}"


@contextmanager
def _sacrebleu_seed(seed: int) -> Iterator[None]:
    """sacreBLEU takes the seed of its bootstrap from the environment and nowhere else."""
    before = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = before

"""Corpus metrics: BLEU, chrF++ and TER as sacreBLEU computes them (Post 2018, arXiv:1804.08771), each with
the signature that reproduces it; and whether the difference between systems is more than chance.

Text goes in as the user would read it: detokenised hypotheses against untouched references. The one exception
is the tokenised, lowercased figure of the Multi30k literature, which exists to stand beside a published table and must
not be mixed with the others. Producing the hypotheses is `decode`'s work; the model's own probabilities are in
`score.py`.

Every figure is made by a `Measure`: statistics of each line, and a score from their sums. Corpus scores and the
bootstrap differ in which lines are summed, in nothing else.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeGuard

import numpy as np
from jaxtyping import Float
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU, BLEUScore
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from sightline.errors import UserError, unknown

References = Sequence[str] | Sequence[Sequence[str]]

METRICS = ("BLEU", "chrF++", "TER")
TOKENIZER_PACKAGES = {"ja-mecab": "sacrebleu[ja]", "ko-mecab": "sacrebleu[ko]"}  # those of others: sentencepiece
MULTI30K = "BLEU (Multi30k: tokenized, lowercased)"
SAMPLES, SEED = 1000, 12345  # of the bootstrap; the seed is sacreBLEU's


@dataclass(frozen=True)
class Length:
    """How long the output is beside the references, in BLEU's tokens; of several references the nearest counts."""

    hypothesis: int
    reference: int
    brevity_penalty: float  # what BLEU is multiplied by for it, 0 to 1

    @property
    def ratio(self) -> float:
        """Output / references; below 1 it is too short."""
        return self.hypothesis / self.reference if self.reference else 0.0

    def as_json(self) -> dict[str, float]:
        """`{"ratio": 0.95, "hypothesis": 950, "reference": 1000, "brevity_penalty": 0.949}`."""
        return {"ratio": self.ratio, **asdict(self)}


@dataclass(frozen=True)
class Score:
    """One figure, 0 to 100, and how it was made. Higher is better, except for TER, which counts edits."""

    name: str
    score: float
    signature: str
    length: Length | None = None  # of BLEU


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


@dataclass(frozen=True)
class Measure:
    """A metric of sacreBLEU's, what is done to each line before it, and how the signature says so."""

    name: str
    metric: Metric
    prepare: Callable[[str], str] = str
    steps: str = ""

    def statistics(self, hypotheses: Sequence[str], references: References) -> Float[np.ndarray, "lines figures"]:
        """What each line contributes: their sum makes the corpus score. `UserError` for counts that differ."""
        streams = _reference_streams(hypotheses, references)
        lines = [self.prepare(line) for line in hypotheses]
        prepared = [[self.prepare(line) for line in stream] for stream in streams]
        return np.array(self.metric._extract_corpus_statistics(lines, prepared), dtype=float)

    def score(self, statistics: Float[np.ndarray, "lines figures"]) -> Score:
        """The score of the corpus that `statistics` has just been called for."""
        result = self.metric._compute_score_from_stats(statistics.sum(0))
        length = (
            Length(int(result.sys_len), int(result.ref_len), float(result.bp))
            if isinstance(result, BLEUScore)
            else None
        )
        return Score(self.name, float(result.score), self.signature(), length)

    def resampled(
        self, statistics: Float[np.ndarray, "lines figures"], n_samples: int = SAMPLES, seed: int = SEED
    ) -> Float[np.ndarray, " samples"]:
        """The scores of as many lines drawn with replacement, the same draws for every system of as many lines."""
        lines = len(statistics)
        drawn = np.random.default_rng(seed).choice(lines, size=(n_samples, lines), replace=True)
        counts = np.stack([np.bincount(row, minlength=lines) for row in drawn])
        return np.array(
            [self.metric._compute_score_from_stats(sums).score for sums in counts @ statistics], dtype=float
        )

    def signature(self, **more: Any) -> str:
        """sacreBLEU's, once the metric has seen references; with `more` items, such as `seed=1`."""
        signature = self.metric.get_signature()
        for key, value in more.items():
            signature.update(key, value)
        return f"{signature}|{self.steps}" if self.steps else str(signature)


def measures(
    metrics: Sequence[str] = METRICS, tokenize: str = "13a", lowercase: bool = False, multi30k: str = ""
) -> list[Measure]:
    """The metrics that `metrics` names (TER is much the slowest), and the Multi30k figure of a target language.

    `tokenize` names sacreBLEU's BLEU tokenizer ("13a"; "ja-mecab", "zh" ... where words are not spaced); `lowercase`
    concerns BLEU and chrF++ only (TER ignores case by its definition).

    The Multi30k figure prepares both sides as the data set's own `*.lc.norm.tok.*` files (lower case, Moses'
    normalize-punctuation, Moses' tokenizer; github.com/multi30k/dataset, scripts/task1-tokenize.sh) and scores them
    like `multi-bleu.perl`: sacreBLEU with no tokenizer and no smoothing. `multi30k` is the code of the target language,
    "de" or "fr". Of the data set's own tokenised test files all German lines come out identical, and all French ones
    but one.
    """
    if tokenize not in BLEU.TOKENIZERS:
        raise unknown("BLEU tokenizer", tokenize, BLEU.TOKENIZERS)
    makers: dict[str, Callable[[], Metric]] = {
        "BLEU": lambda: _bleu(tokenize, lowercase),
        "chrF++": lambda: CHRF(word_order=2, lowercase=lowercase),
        "TER": lambda: TER(),
    }
    for name in metrics:
        if name not in makers:
            raise unknown("metric", name, makers)
    chosen = [Measure(name, makers[name]()) for name in metrics]
    if multi30k:
        chosen.append(Measure(MULTI30K, BLEU(tokenize="none", smooth_method="none", force=True), *_moses(multi30k)))
    return chosen


def _bleu(tokenize: str, lowercase: bool) -> BLEU:
    """The metric, or in one line what its tokenizer needs: some of them are packages of their own, or downloads."""
    try:
        # `force` only silences a warning about text that looks tokenised already; no figure depends on it.
        return BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
    except (ImportError, RuntimeError, OSError, SystemExit) as error:
        package = TOKENIZER_PACKAGES.get(tokenize, "sentencepiece")
        if isinstance(error, ImportError) or tokenize in TOKENIZER_PACKAGES:
            raise UserError(f'--tokenize {tokenize} needs a package: pip install "{package}"') from None
        what = "its model, which sacreBLEU keeps below ~/.sacrebleu/models, cannot be read or fetched"
        raise UserError(f"--tokenize {tokenize}: {what} ({error}); fetch it once with a network, or use 13a") from None


def corpus_scores(
    hypotheses: Sequence[str],
    references: References,
    metrics: Sequence[str] = METRICS,
    tokenize: str = "13a",
    lowercase: bool = False,
    multi30k: str = "",
) -> dict[str, Score]:
    """BLEU, chrF++ and TER of a whole corpus, or the `measures` asked for.

    `references` is one list of strings, or several such lists for several references, each as long as
    `hypotheses`. Raises `UserError` for counts that differ.

    >>> scores = corpus_scores(["Ein Hund rennt .", "Hallo!"], ["Ein Hund rennt .", "Hallo!"])
    >>> [(score.name, round(score.score, 1)) for score in scores.values()]
    [('BLEU', 100.0), ('chrF++', 100.0), ('TER', 0.0)]
    """
    chosen = measures(metrics, tokenize, lowercase, multi30k)
    return {measure.name: measure.score(measure.statistics(hypotheses, references)) for measure in chosen}


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
    """The tokenised, lowercased BLEU of the Multi30k literature; only for comparison with its tables (`measures`)."""
    return corpus_scores(hypotheses, references, [], multi30k=language)[MULTI30K]


def paired_bootstrap(
    hypotheses_a: Sequence[str],
    hypotheses_b: Sequence[str],
    references: References,
    metrics: Sequence[str] = METRICS,
    n_samples: int = SAMPLES,
    seed: int = SEED,
    tokenize: str = "13a",
    lowercase: bool = False,
    multi30k: str = "",
) -> dict[str, Comparison]:
    """Is system b really different from a? Paired bootstrap (Koehn 2004, W04-3250), sacreBLEU's figure for figure.

    Both systems are scored on the same `n_samples` random draws, with replacement, of as many lines as the
    corpus has. A p-value under 0.05 is the usual line; with a few hundred lines a difference of half a point
    rarely makes it.
    """
    if n_samples < 1 or seed < 1:
        raise UserError(f"n_samples and seed must be at least 1, not {n_samples} and {seed}")
    comparisons = {}
    for measure in measures(metrics, tokenize, lowercase, multi30k):
        a, b = (measure.statistics(hypotheses, references) for hypotheses in (hypotheses_a, hypotheses_b))
        scores = [measure.score(a).score], [measure.score(b).score]
        samples = [measure.resampled(a, n_samples, seed)], [measure.resampled(b, n_samples, seed)]
        signature = measure.signature(seed=seed, bs=n_samples)
        comparisons[measure.name] = compare(measure.name, signature, scores, samples, seed)
    return comparisons


def compare(
    name: str,
    signature: str,
    scores: tuple[Sequence[float], Sequence[float]],
    samples: tuple[Sequence[Float[np.ndarray, " samples"]], Sequence[Float[np.ndarray, " samples"]]],
    seed: int = SEED,
) -> Comparison:
    """Two systems, each trained once or with several seeds: `scores` of the runs, and theirs when `resampled`.

    A system of several runs counts by their mean. In each sample as many of its runs are drawn, with replacement, as it
    has: the luck of a seed is chance as well as that of a sentence (Clark et al. 2011, P11-2031).
    """
    rng = np.random.default_rng(seed)
    real = [float(np.mean(own)) for own in scores]
    a, b = (_mean_of_drawn(np.stack(own), rng) for own in samples)
    differences = np.abs(a - b)
    beyond = int((differences - differences.mean() > abs(real[0] - real[1])).sum())
    # For equal scores the count gives the smallest p-value, but every difference is as large as none.
    p_value = 1.0 if real[0] == real[1] else (beyond + 1) / (len(differences) + 1)
    return Comparison(name, _interval(real[0], a), _interval(real[1], b), p_value, signature)


def _mean_of_drawn(
    samples: Float[np.ndarray, "runs samples"], rng: np.random.Generator
) -> Float[np.ndarray, " samples"]:
    runs = rng.integers(len(samples), size=samples.shape)
    return np.take_along_axis(samples, runs, axis=0).mean(0)


def _interval(score: float, samples: Float[np.ndarray, " samples"]) -> Interval:
    ordered, edge = np.sort(samples), len(samples) // 40
    return Interval(score, float(samples.mean()), float(ordered[-edge - 1] - ordered[edge]) / 2)


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

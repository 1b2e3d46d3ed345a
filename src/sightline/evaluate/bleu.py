"""Corpus metrics: BLEU, chrF++ and TER as sacreBLEU computes them (Post 2018, arXiv:1804.08771), each with
the signature that reproduces it.

Text goes in as the user would read it: detokenised hypotheses against untouched references. The one exception
is the tokenised, lowercased figure of the Multi30k literature, which exists to stand beside a published table and must
not be mixed with the others. Producing the hypotheses is `decode`'s work; the model's own probabilities are in
`score.py`.

Every figure is made by a `Measure`: statistics of each line, and a score from their sums. Corpus scores and the
bootstrap (`significance.py`) differ in which lines are summed, in nothing else.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeGuard

import numpy as np
from jaxtyping import Float
from sacrebleu.metrics.bleu import BLEU, BLEUScore
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from sightline.errors import UserError, unknown
from sightline.evaluate.spacing import bleu_tokenizer

References = Sequence[str] | Sequence[Sequence[str]]

METRICS = ("BLEU", "chrF++", "TER")
ROUGE = ("ROUGE-1", "ROUGE-2", "ROUGE-L")  # of summaries
EAST_ASIAN = ("zh", "ja-mecab", "char")  # tokenizers of text in which TER, too, has to look for words
TOKENIZER_PACKAGES = {"ja-mecab": "sacrebleu[ja]", "ko-mecab": "sacrebleu[ko]"}  # those of others: sentencepiece
MULTI30K = "BLEU (Multi30k: tokenized, lowercased)"


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
class Measure:
    """A metric of sacreBLEU's or `rouge.Rouge`, what is done to each line before it, and how the signature says so."""

    name: str
    metric: Any
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

    def signature(self, **more: Any) -> str:
        """sacreBLEU's, once the metric has seen references; with `more` items, such as `seed=1`."""
        signature = self.metric.get_signature()
        for key, value in more.items():
            signature.update(key, value)
        return f"{signature}|{self.steps}" if self.steps else str(signature)


def measures(
    metrics: Sequence[str] = METRICS,
    tokenize: str = "",
    lowercase: bool = False,
    multi30k: str = "",
    references: References = (),
) -> list[Measure]:
    """The metrics that `metrics` names (TER is much the slowest), and the Multi30k figure of a target language.

    `tokenize` names sacreBLEU's BLEU tokenizer; "" is the one for text as `references` are (`spacing.py`). With "char"
    TER is of letters, too: Thai and others, which sacreBLEU leaves whole, are put apart; the signature says so.
    `lowercase` concerns BLEU and chrF++ only (TER ignores case by its definition).

    The Multi30k figure prepares both sides as the data set's own `*.lc.norm.tok.*` files (lower case, Moses'
    normalize-punctuation, Moses' tokenizer; github.com/multi30k/dataset, scripts/task1-tokenize.sh) and scores them
    like `multi-bleu.perl`: sacreBLEU with no tokenizer and no smoothing. `multi30k` is the code of the target language,
    "de" or "fr". Of the data set's own tokenised test files all German lines come out identical, and all French ones
    but one.
    """
    tokenize = tokenize or bleu_tokenizer([line for stream in _streams(references) for line in stream])
    if tokenize not in BLEU.TOKENIZERS:
        raise unknown("BLEU tokenizer", tokenize, BLEU.TOKENIZERS)
    makers: dict[str, Callable[[], Any]] = {
        "BLEU": lambda: _bleu(tokenize, lowercase),
        "chrF++": lambda: CHRF(word_order=2, lowercase=lowercase),
        "TER": lambda: TER(normalized=tokenize in EAST_ASIAN, asian_support=tokenize in EAST_ASIAN),
        **{name: partial(_rouge, name) for name in ROUGE},
    }
    for name in metrics:
        if name not in makers:
            raise unknown("metric", name, makers)
    chosen = [Measure(name, makers[name]()) for name in metrics]
    if tokenize == "char":
        from sightline.evaluate.letters import of_letters  # which few languages need

        chosen = [of_letters(measure, references) for measure in chosen]
    if multi30k:
        chosen.append(Measure(MULTI30K, BLEU(tokenize="none", smooth_method="none", force=True), *_moses(multi30k)))
    return chosen


def _rouge(name: str) -> Any:
    from sightline.evaluate.rouge import Rouge  # which translations do without

    return Rouge(name)


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
    tokenize: str = "",
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
    chosen = measures(metrics, tokenize, lowercase, multi30k, references)
    return {measure.name: measure.score(measure.statistics(hypotheses, references)) for measure in chosen}


def bleu_signature(references: Sequence[str] = ()) -> str:
    """The signature of `corpus_scores`' BLEU with one reference for each line.

    >>> bleu_signature().split("|version")[0]
    'nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp'
    """
    return corpus_scores(["."], ["."], ["BLEU"], bleu_tokenizer(references))["BLEU"].signature


def as_json(scores: dict[str, Score]) -> dict[str, dict[str, float | str]]:
    """`{"BLEU": {"score": 41.02, "signature": "nrefs:1|..."}, ...}`, for machines."""
    return {name: {"score": score.score, "signature": score.signature} for name, score in scores.items()}


def _reference_streams(hypotheses: Sequence[str], references: References) -> list[list[str]]:
    """References as a list of lists, after a check that every list pairs up with the hypotheses."""
    if not hypotheses:
        raise UserError("nothing to evaluate: there are no hypotheses")
    streams = _streams(references)
    for number, stream in enumerate(streams, start=1):
        if len(stream) != len(hypotheses):
            which = f"reference {number} has" if len(streams) > 1 else "the reference has"
            raise UserError(
                f"{len(hypotheses)} hypotheses but {which} {len(stream)} lines; "
                "line n of one must belong to line n of the other"
            )
    return streams


def _streams(references: References) -> list[list[str]]:
    return [list(stream) for stream in ([references] if _is_text(references) else references)]


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

"""Corpus metrics: BLEU, chrF++ and TER as sacreBLEU computes them (Post 2018, arXiv:1804.08771), each with
the signature that reproduces it.

Inputs are detokenized hypotheses and untouched references. The one exception is the tokenized, lowercased figure of the
Multi30k literature, for comparison with published tables only. See `decode` for producing hypotheses and `score.py` for
the model's own probabilities.

A `Measure` computes statistics of each line, and a score from their sums. The bootstrap (`significance.py`) sums other
lines and is the same otherwise.

For text without spaces between words, `bleu_tokenizer` chooses the tokenizer, and TER splits letters also where
sacreBLEU does not: it splits Chinese and Japanese, but not Thai, Lao, Burmese, Khmer and Tibetan.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from headwise.errors import UserError, unknown
from headwise.evaluate.comet import COMET, Comet, is_comet
from headwise.evaluate.measure import Measure, References, Score, _streams
from headwise.evaluate.rouge import Rouge
from headwise.text.files.scripts import HAN, SOUTH_ASIAN, UNSPACED

TIBETAN = "\u0f00-\u0fff"  # which marks the ends of syllables, not of words
RUN_ON = f"[{UNSPACED}{TIBETAN}]"
_WHOLE = re.compile(f"([{SOUTH_ASIAN}{TIBETAN}])")
METRICS = ("BLEU", "chrF++", "TER")
ROUGE = ("ROUGE-1", "ROUGE-2", "ROUGE-L")  # of summaries
EAST_ASIAN = ("zh", "ja-mecab", "char")  # tokenizers of text in which TER needs word segmentation as well
TOKENIZER_PACKAGES = {"ja-mecab": "sacrebleu[ja]", "ko-mecab": "sacrebleu[ko]"}  # other tokenizers need sentencepiece
MULTI30K = "BLEU (Multi30k: tokenized, lowercased)"


def measures(
    metrics: Sequence[str] = METRICS,
    tokenize: str = "",
    lowercase: bool = False,
    multi30k: str = "",
    references: References = (),
) -> list[Measure]:
    """The metrics named in `metrics` (TER is the slowest), and the Multi30k figure of a target language.

    `tokenize` names sacreBLEU's BLEU tokenizer; "" chooses it by the `references` (`bleu_tokenizer`). With "char" TER
    also compares letters: Thai and other scripts that sacreBLEU leaves whole are split; the signature shows it.
    `lowercase` affects BLEU and chrF++ only (TER always ignores case).

    The Multi30k figure prepares both sides as the data set's own `*.lc.norm.tok.*` files (lower case, Moses'
    normalize-punctuation, Moses' tokenizer; github.com/multi30k/dataset, scripts/task1-tokenize.sh) and scores them
    like `multi-bleu.perl`: sacreBLEU with no tokenizer and no smoothing. `multi30k` is the code of the target language,
    "de" or "fr". All German lines of the data set's tokenized test files come out identical, and all French ones
    but one.
    """
    from sacrebleu.metrics import BLEU, CHRF, TER  # a quarter of what a first translation would wait for

    streams = _streams(references)
    tokenize = tokenize or bleu_tokenizer([line for stream in streams for line in stream])
    if tokenize not in BLEU.TOKENIZERS:
        raise unknown("BLEU tokenizer", tokenize, BLEU.TOKENIZERS)
    makers: dict[str, Callable[[], Any]] = {
        "BLEU": lambda: _bleu(BLEU, tokenize, lowercase),
        "chrF++": lambda: CHRF(word_order=2, lowercase=lowercase),
        "TER": lambda: TER(normalized=tokenize in EAST_ASIAN, asian_support=tokenize in EAST_ASIAN),
        **{name: partial(Rouge, name) for name in ROUGE},
        **{name: partial(Comet, name, len(streams)) for name in (COMET, *filter(is_comet, metrics))},
    }
    for name in metrics:
        if name not in makers:
            raise unknown("metric", name, makers)
    chosen = [Measure(name, makers[name](), reads_sources=is_comet(name)) for name in metrics]
    if tokenize == "char":
        chosen = [split_letters(measure, references) for measure in chosen]
    if multi30k:
        chosen.append(Measure(MULTI30K, BLEU(tokenize="none", smooth_method="none", force=True), *_moses(multi30k)))
    return chosen


def _bleu(metric: Any, tokenize: str, lowercase: bool) -> Any:
    """The metric; `UserError` if its tokenizer needs a package or a download."""
    try:
        # `force` only silences a warning about text that looks tokenized already; no figure depends on it.
        return metric(tokenize=tokenize, lowercase=lowercase, force=True)
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
    """BLEU, chrF++ and TER of a corpus, or other `measures`.

    `references` is one list of strings, or several such lists for several references, each as long as
    `hypotheses`. Raises `UserError` for counts that differ.

    >>> scores = corpus_scores(["Ein Hund rennt .", "Hallo!"], ["Ein Hund rennt .", "Hallo!"])
    >>> [(score.name, round(score.score, 1)) for score in scores.values()]
    [('BLEU', 100.0), ('chrF++', 100.0), ('TER', 0.0)]
    """
    chosen = measures(metrics, tokenize, lowercase, multi30k, references)
    return {measure.name: measure.score(measure.statistics(hypotheses, references)) for measure in chosen}


def bleu_signature(references: Sequence[str] = ()) -> str:
    """The signature of BLEU in `corpus_scores` with one reference for each line.

    >>> bleu_signature().split("|version")[0]
    'nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp'
    """
    return corpus_scores(["."], ["."], ["BLEU"], bleu_tokenizer(references))["BLEU"].signature


def _moses(language: str) -> tuple[Callable[[str], str], str]:
    """The preprocessing of a line, and its part of the signature."""
    try:
        import sacremoses
    except ImportError:
        raise UserError('the Multi30k figure needs sacremoses: pip install "headwise[moses]"') from None
    normalizer = sacremoses.MosesPunctNormalizer(lang=language)
    tokenizer = sacremoses.MosesTokenizer(lang=language)

    def prepare(line: str) -> str:
        return str(tokenizer.tokenize(normalizer.normalize(line.lower()), return_str=True))

    return prepare, f"prep:lc+norm+tok|moses:{language}|sacremoses:{sacremoses.__version__}"


def bleu_tokenizer(references: Sequence[str]) -> str:
    """sacreBLEU's tokenizer for BLEU against these lines: "13a", its default, if there are spaces between words.

    "13a" would treat each clause of other texts as one word: they get "zh" if they are Chinese, else "char", which need
    no package. "ja-mecab", usual for Japanese, has to be requested. Text that is split into words has spaces.

    >>> lines = ["犬が走っている。", "犬 が 走っ て いる 。", "一只狗在跑。", "สุนัขกำลังวิ่ง", "개가 달린다."]
    >>> [bleu_tokenizer([line]) for line in lines]
    ['char', '13a', 'zh', 'char', '13a']
    """
    text = "\n".join(references)
    blank = f"(?<={RUN_ON})[ \u3000](?={RUN_ON})"
    run_on, han, letters, blanks = (len(re.findall(what, text)) for what in (RUN_ON, f"[{HAN}]", r"[^\W\d_]", blank))
    if 4 * run_on < letters or 6 * blanks > run_on or not run_on:
        return "13a"
    return "zh" if 20 * han > 19 * run_on else "char"


def split_letters(measure: Measure, references: References) -> Measure:
    """TER for references with such letters splits them and shows it in the signature; other measures stay."""
    lines = (line for part in references for line in ([part] if isinstance(part, str) else part))
    if measure.name != "TER" or not any(map(_WHOLE.search, lines)):
        return measure
    return replace(measure, prepare=apart, steps="letters:apart")


def apart(line: str) -> str:
    """A line with spaces around each of those letters.

    >>> apart("ก2ข 犬が").split()
    ['ก', '2', 'ข', '犬が']
    """
    return _WHOLE.sub(r" \1 ", line)

"""Word and character error rate of transcripts, computed by `jiwer`.

Both are edits over the length of the references: (substitutions + deletions + insertions) / words. Case, punctuation
and text in brackets are ignored: texts are normalized as in Whisper's report (arXiv:2212.04356, appendix C) for all
languages but English. The normalizer "english" also unifies numbers and spellings, by OpenAI's rules (package
`whisper-normalizer`).
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headwise.errors import UserError, unknown
from headwise.text.files.sources import count_of

INSTALL = 'pip install "headwise[speech]"'
PARENTHESES, BRACKETS = re.compile(r"\([^)]+?\)"), re.compile(r"[<\[][^>\]]*[>\]]")
BASIC, ENGLISH = NORMALIZERS = ("basic", "english")


@dataclass(frozen=True)
class TranscriptReport:
    """Scores of a test set."""

    wer: float  # errors per word, normalized; can exceed 1
    wer_as_written: float  # case and punctuation count
    cer: float  # errors per character, normalized; for languages without spaces between words
    substitutions: int
    deletions: int
    insertions: int
    words: int  # of the references, normalized
    recordings: int
    normalizer: str = BASIC  # one of NORMALIZERS

    def as_json(self) -> dict[str, Any]:
        """The figures, and what they are over."""
        return asdict(self)

    def render(self) -> str:
        """One line for people."""
        edits = f"{self.substitutions} substituted, {self.deletions} deleted, {self.insertions} inserted"
        rates = f"WER {self.wer:.2%} ({edits}; {self.wer_as_written:.2%} as written), CER {self.cer:.2%}"
        rates += ", English normalised" * (self.normalizer == ENGLISH)
        return f"{rates} over {count_of(self.words, 'word')} of {count_of(self.recordings, 'recording')}"


def transcript_report(references: Sequence[str], written: Sequence[str], normalizer: str = BASIC) -> TranscriptReport:
    """Scores of the transcripts `written` against `references`.

    >>> report = transcript_report(["Four, five.", "six"], ["four nine", "Six [laughs]"])
    >>> round(report.wer, 3), report.substitutions, round(report.wer_as_written, 3)
    (0.333, 1, 1.333)

    Raises:
        UserError: `jiwer` or the normalizer is not installed, or a reference has no word.
    """
    jiwer, normalize = check_jiwer(), normalizer_of(normalizer)
    plain = [normalize(text) for text in references]
    if not all(plain):
        raise UserError(
            f"a transcript has no word left to compare: {references[plain.index('')]!r}; remove that recording"
        )
    heard = [normalize(text) for text in written]
    words, raw = jiwer.process_words(plain, heard), jiwer.process_words(list(references), list(written))
    return TranscriptReport(
        words.wer,
        raw.wer,
        jiwer.process_characters(plain, heard).cer,
        words.substitutions,
        words.deletions,
        words.insertions,
        words.hits + words.substitutions + words.deletions,
        len(references),
        normalizer,
    )


def check_jiwer() -> Any:
    """The module `jiwer`; `UserError` if it is not installed."""
    try:
        import jiwer
    except ImportError:
        raise UserError(f"word error rates are counted by jiwer: {INSTALL}") from None
    return jiwer


def normalizer_of(name: str) -> Callable[[str], str]:
    """The normalizer of that name; `UserError` if it does not exist or is not installed."""
    if name == BASIC:
        return normalize_transcript
    if name != ENGLISH:
        raise unknown("normalizer", name, NORMALIZERS)
    try:
        from whisper_normalizer.english import EnglishTextNormalizer  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise UserError(
            '--normalizer english needs whisper-normalizer: pip install "headwise[speech-english]"'
        ) from None
    return EnglishTextNormalizer()


def _without(pattern: re.Pattern[str], closing: str, text: str) -> str:
    """A text without the matches of a pattern; behind the last closing bracket there can be none."""
    end = 1 + max(text.rfind(bracket) for bracket in closing)
    return pattern.sub("", text[:end]) + text[end:]


def normalize_transcript(text: str) -> str:
    """Lowercase letters and digits with one space between words; without text in brackets.

    >>> normalize_transcript("(Sighs.)  Seven, ÉIGHT!")
    'seven éight'
    """
    text = _without(PARENTHESES, ")", _without(BRACKETS, ">]", text.lower()))
    text = "".join(" " if unicodedata.category(c)[0] in "MSP" else c for c in unicodedata.normalize("NFKC", text))
    return " ".join(text.lower().split())

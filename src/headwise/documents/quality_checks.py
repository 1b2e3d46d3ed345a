"""Quality warnings for translations that need review, by checks that need no knowledge of either language.

The thresholds aim at few false alarms. `benchmarks/flags.py` measures how many wrong translations get a warning, and
how many correct ones.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from headwise.documents.unit import POINT, Parts
from headwise.runtime.search.repetition import is_repetitive
from headwise.text.files.scripts import KANA, latin_length, split_words

MIN_LENGTH_RATIO, MAX_LENGTH_RATIO = 0.4, 2.5  # target letters per source letter, by `scripts.latin_length`
MIN_LETTERS = 20  # letters; the ratio means little for shorter texts
MIN_LETTERS_SHORT, MIN_LENGTH_RATIO_SHORT = (
    8,
    0.2,
)  # between this and MIN_LETTERS another ratio
MIN_LOG_PROB = -1.5  # mean natural log-probability per token
MAX_SOURCE_WORDS = 0.6  # share of target words that are source words
NUMBER = re.compile(r"\d+(?:[.,'\u2019\u00a0\u202f ]\d+)*")
PUNCTUATION = ".,;:!?\"'()"  # around words
SEPARATOR = re.compile(r"\D")
RUN = re.compile(r"([^\w\s])\1{3,}|([^\W\d_])\2{4,}|([^\W\d_]{2,4})\3{3,}")
BRACKETS = {"(": ")", "[": "]", "{": "}", "«": "»"} | dict(
    zip("\uff08\uff3b\u300c\u300e", "\uff09\uff3d\u300d\u300f", strict=True)  # full-width and Japanese
)
CLOSING = {closing: opening for opening, closing in BRACKETS.items()}
QUESTIONS = ("?", "\uff1f", "\u061f", "\u2e2e", "\u055e", "\u1367")
WITHOUT_QUESTION_MARK = re.compile(rf"[{KANA}\u0370-\u03ff]")  # Japanese uses か and others, Greek a semicolon
MAX_SPELLED_OUT = 2  # digits of a number that a language may spell out
UNKNOWN = ("\ufffd", "⁇", "<unk>")

SHORT, LONG = "much shorter than its source", "much longer than its source"
REPEATS, COPIED, NUMBERS, IMPROBABLE = "repeats itself", "the same as its source", "other numbers", "improbable"
EMPTY, ROW, UNPAIRED = "no words", "the same characters in a row", "brackets or quotation marks without partners"
QUESTION, PARTLY, STRANGE = "a question mark lost or added", "mostly words of its source", "unknown characters"


def quality_warnings(source: Parts, target: Parts, log_prob: float) -> tuple[str, ...]:
    """The quality warnings for a translation.

    >>> quality_warnings(("Open 3 files in the editor",), ("Open 3 files in the editor",), -0.1)
    ('the same as its source',)
    >>> quality_warnings(("Open 3 files in the editor",), ("12 Dateien im Editor oeffnen",), -0.1)
    ('other numbers',)
    >>> quality_warnings(("He lowers his head",), ("L'est-tete ( ()))))))))",), -0.1)
    ('the same characters in a row', 'brackets or quotation marks without partners')
    """
    src, tgt = _words(source), _words(target)
    src_words, tgt_words = split_words(src), split_words(tgt)
    copied = len(src_words) > 2 and src.lower() == tgt.lower()
    repeats = _repeats(tgt_words) and not _repeats(src_words)
    rows = _repeated_characters(tgt)
    checks = {
        EMPTY: _count_letters(src) > 2 and not _count_letters(tgt),
        SHORT: _is_short(latin_length(src), latin_length(tgt)),
        LONG: latin_length(tgt) >= MIN_LETTERS and latin_length(tgt) > MAX_LENGTH_RATIO * max(1, latin_length(src)),
        REPEATS: repeats,
        ROW: not repeats and bool(rows and Counter(rows) - Counter(_repeated_characters(src))),
        UNPAIRED: _has_unpaired(tgt) and not _has_unpaired(src),
        COPIED: copied,
        PARTLY: not copied and _mostly_source_words(src_words, tgt_words),
        NUMBERS: _numbers_differ(src, tgt),
        QUESTION: _is_question(src) != _is_question(tgt) and not WITHOUT_QUESTION_MARK.search(src + tgt),
        STRANGE: any(unknown in tgt and unknown not in src for unknown in UNKNOWN),
        IMPROBABLE: log_prob < MIN_LOG_PROB,
    }
    return tuple(name for name, failed in checks.items() if failed)


def _words(parts: Parts) -> str:
    """The text without codes, with single blanks; a placeholder or a line break divides words."""
    pieces = (part if isinstance(part, str) else " " * (part.kind == POINT) for part in parts)
    return " ".join("".join(pieces).split())


def _count_letters(text: str) -> int:
    return sum(map(str.isalpha, text))


def _is_short(source: float, target: float) -> bool:
    return (
        source >= MIN_LETTERS_SHORT
        and target < (MIN_LENGTH_RATIO if source >= MIN_LETTERS else MIN_LENGTH_RATIO_SHORT) * source
    )


def _repeats(text: Sequence[str]) -> bool:
    """Whether words repeat: a phrase several times in a row, or a long word or phrase twice.

    >>> _repeats("a dog in the house in the house".split()), _repeats("that he had had enough".split())
    (True, False)
    """
    bare = [word.strip(PUNCTUATION).casefold() for word in text]
    for n in range(1, min(5, len(bare) // 2) + 1):
        for i in range(len(bare) - 2 * n + 1):
            stretch = bare[i : i + n] if bare[i] == bare[i + n] else []
            if stretch == bare[i + n : i + 2 * n] and sum(map(_count_letters, stretch)) >= (5 if n == 1 else 7):
                return True
    return is_repetitive(text)


def _repeated_characters(text: str) -> list[str]:
    """Characters that occur too often in a row."""
    return [found[0][0] for found in RUN.finditer(text)]


def _has_unpaired(text: str) -> bool:
    """Whether a bracket or a quotation mark has no partner."""
    opened: list[str] = []
    for character in text:
        if character in BRACKETS:
            opened.append(character)
        elif character in CLOSING and (not opened or opened.pop() != CLOSING[character]):
            return True
    return bool(opened) or text.count('"') % 2 == 1


def _mostly_source_words(source: Sequence[str], target: Sequence[str]) -> bool:
    """Whether most words of a translation are source words; capitalised words (names) do not count."""
    own, long = (
        [bare for word in of if len(bare := word.strip(PUNCTUATION)) > 3 and bare.isalpha() and bare.islower()]
        for of in (source, target)
    )
    own = set(own)
    return 2 < len(long) > len(target) / 3 and sum(word in own for word in long) > MAX_SOURCE_WORDS * len(long)


def _numbers_differ(source: str, target: str) -> bool:
    """Whether a number is missing, or one of several digits is added; the source may spell out small numbers."""
    src, tgt = Counter(_numbers(source)), Counter(_numbers(target))
    return bool(src - tgt) or any(len(number) > MAX_SPELLED_OUT for number in tgt - src)


def _numbers(text: str) -> list[str]:
    """The digits of each number, without separators: 1,000 is 1.000 and 1 000, full-width or not."""
    digits = (SEPARATOR.sub("", found[0]) for found in NUMBER.finditer(text))
    return ["".join(str(unicodedata.digit(digit)) for digit in number) for number in digits]


def _is_question(text: str) -> bool:
    """Whether a text ends with a question mark, apart from quotation marks and brackets."""
    return text.rstrip("\"'\u201d\u2019\u00bb)\u300d\u300f ").endswith(QUESTIONS)

"""Why a reviewer should look at a translation first: what can be seen without knowing either language.

Thresholds are for telling the few that are wrong, not for judging the many. `benchmarks/flags.py` measures how many of
the wrong ones are told, and how many of the right ones are, too.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from sightline.data.scripts import KANA, letters, words
from sightline.decode.repetition import repeats_itself
from sightline.localisation.carrying import uncoded
from sightline.localisation.unit import Parts

SHORTEST, LONGEST = 0.4, 2.5  # letters of a translation to one of its source, by `scripts.letters`
FEW = 20  # letters; lengths of texts below say little
FEWEST, SHORTEST_OF_FEW = 8, 0.2  # and nothing of those below; between them a translation is short only below this
UNSURE = -1.5  # natural log-probability of a piece, on average
KEPT = 0.6  # share of the words of a translation that stand in its source
NUMBER = re.compile(r"\d+(?:[.,'\u2019\u00a0\u202f ]\d+)*")
PUNCTUATION = ".,;:!?\"'()"  # around words
SEPARATOR = re.compile(r"\D")
RUN = re.compile(r"([^\w\s])\1{3,}|([^\W\d_])\2{4,}|([^\W\d_]{2,4})\3{3,}")
BRACKETS = {"(": ")", "[": "]", "{": "}", "«": "»"} | dict(
    zip("\uff08\uff3b\u300c\u300e", "\uff09\uff3d\u300d\u300f", strict=True)  # of full width, and of Japanese
)
CLOSING = {closing: opening for opening, closing in BRACKETS.items()}
QUESTIONS = ("?", "\uff1f", "\u061f", "\u2e2e", "\u055e", "\u1367")
WITHOUT_QUESTION_MARK = re.compile(rf"[{KANA}\u0370-\u03ff]")  # Japanese has か and others, Greek a semicolon
SPELT = 2  # digits of a number that a language may write in words
UNKNOWN = ("\ufffd", "⁇", "<unk>")

SHORT, LONG = "much shorter than its source", "much longer than its source"
REPEATS, COPIED, NUMBERS, IMPROBABLE = "repeats itself", "the same as its source", "other numbers", "improbable"
EMPTY, ROW, UNPAIRED = "no words", "the same characters in a row", "brackets or quotation marks without partners"
QUESTION, PARTLY, STRANGE = "a question mark lost or added", "mostly words of its source", "unknown characters"


def doubts(source: Parts, target: Parts, log_prob: float) -> tuple[str, ...]:
    """What is odd about a translation.

    >>> doubts(("Open 3 files in the editor",), ("Open 3 files in the editor",), -0.1)
    ('the same as its source',)
    >>> doubts(("Open 3 files in the editor",), ("12 Dateien im Editor oeffnen",), -0.1)
    ('other numbers',)
    >>> doubts(("He lowers his head",), ("L'est-tete ( ()))))))))",), -0.1)
    ('the same characters in a row', 'brackets or quotation marks without partners')
    """
    src, tgt = uncoded(source), uncoded(target)
    src_words, tgt_words = words(src), words(tgt)
    copied = len(src_words) > 2 and src.lower() == tgt.lower()
    repeats = _repeats(tgt_words) and not _repeats(src_words)
    found = {
        EMPTY: _letters(src) > 2 and not _letters(tgt),
        SHORT: _is_short(letters(src), letters(tgt)),
        LONG: letters(tgt) >= FEW and letters(tgt) > LONGEST * max(1, letters(src)),
        REPEATS: repeats,
        ROW: not repeats and bool(Counter(_runs(tgt)) - Counter(_runs(src))),
        UNPAIRED: _unpaired(tgt) and not _unpaired(src),
        COPIED: copied,
        PARTLY: not copied and _is_kept(src_words, tgt_words),
        NUMBERS: _numbers_differ(src, tgt),
        QUESTION: _asks(src) != _asks(tgt) and not WITHOUT_QUESTION_MARK.search(src + tgt),
        STRANGE: any(unknown in tgt and unknown not in src for unknown in UNKNOWN),
        IMPROBABLE: log_prob < UNSURE,
    }
    return tuple(name for name, holds in found.items() if holds)


def _letters(text: str) -> int:
    return sum(map(str.isalpha, text))


def _is_short(source: float, target: float) -> bool:
    return source >= FEWEST and target < (SHORTEST if source >= FEW else SHORTEST_OF_FEW) * source


def _repeats(text: Sequence[str]) -> bool:
    """Whether a stretch of words stands often in a row, or a long word or several words twice.

    >>> _repeats("a dog in the house in the house".split()), _repeats("that he had had enough".split())
    (True, False)
    """
    bare = [word.strip(PUNCTUATION).casefold() for word in text]
    for n in range(1, min(5, len(bare) // 2) + 1):
        for i in range(len(bare) - 2 * n + 1):
            stretch = bare[i : i + n] if bare[i] == bare[i + n] else []
            if stretch == bare[i + n : i + 2 * n] and sum(map(_letters, stretch)) >= (5 if n == 1 else 7):
                return True
    return repeats_itself(text)


def _runs(text: str) -> list[str]:
    """The characters that stand in a row too often to be meant."""
    return [found[0][0] for found in RUN.finditer(text)]


def _unpaired(text: str) -> bool:
    """Whether a bracket closes that has not opened, or the other way round; or a quotation mark is left alone."""
    opened: list[str] = []
    for character in text:
        if character in BRACKETS:
            opened.append(character)
        elif character in CLOSING and (not opened or opened.pop() != CLOSING[character]):
            return True
    return bool(opened) or text.count('"') % 2 == 1


def _is_kept(source: Sequence[str], target: Sequence[str]) -> bool:
    """Whether most of a translation is words of its source; names, which are written in capitals, do not count."""
    own, long = (
        [bare for word in of if len(bare := word.strip(PUNCTUATION)) > 3 and bare.isalpha() and bare.islower()]
        for of in (source, target)
    )
    own = set(own)
    return 2 < len(long) > len(target) / 3 and sum(word in own for word in long) > KEPT * len(long)


def _numbers_differ(source: str, target: str) -> bool:
    """Whether a number is lost, or one is added that is not of few digits: those a source may have in words."""
    src, tgt = Counter(_numbers(source)), Counter(_numbers(target))
    return bool(src - tgt) or any(len(number) > SPELT for number in tgt - src)


def _numbers(text: str) -> list[str]:
    """Numbers by their digits alone: 1,000 is 1.000 and 1 000, of full width or not."""
    digits = (SEPARATOR.sub("", found[0]) for found in NUMBER.finditer(text))
    return ["".join(str(unicodedata.digit(digit)) for digit in number) for number in digits]


def _asks(text: str) -> bool:
    """Whether a text ends as a question does, quotation marks and brackets aside."""
    return text.rstrip("\"'\u201d\u2019\u00bb)\u300d\u300f ").endswith(QUESTIONS)

"""Scripts that have no blanks between words, as ranges for the brackets of a regular expression."""

import re
import unicodedata
from collections.abc import Iterable
from functools import cache

SOUTH_ASIAN = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\uaa60-\uaa7f"  # Thai, Lao, Burmese, Khmer
KANA = "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"
HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
UNSPACED = SOUTH_ASIAN + KANA + HAN
_UNSPACED_END = re.compile(f"[{KANA}{HAN}\u3000-\u303f\uff01-\uff60]")  # with CJK punctuation and full width
_WORD = re.compile(f"[{UNSPACED}]|[^\\s{UNSPACED}]+")


def split_words(text: str) -> list[str]:
    """What blanks separate; a letter of a script without them is a word of its own.

    >>> split_words("Two dogs, 二犬")
    ['Two', 'dogs,', '二', '犬']
    """
    return _WORD.findall(text)


def latin_length(text: str) -> float:
    """How many characters a text would have in an alphabet: 3 for one of Chinese, 1.5 for one of Japanese kana.

    By least squares 2.8 and 1.4 in Tatoeba's Japanese, 3.4 and 1.5 in Python's documentation, beside English.
    """
    return len(text) + 2 * len(re.findall(f"[{HAN}]", text)) + 0.5 * len(re.findall(f"[{KANA}]", text))


def space_after(sentence: str) -> str:
    """What stands between it and the next one: nothing in Chinese and Japanese."""
    return "" if _UNSPACED_END.match(sentence, max(0, len(sentence) - 1)) else " "


def join_sentences(sentences: Iterable[str]) -> str:
    """One text of them; empty ones leave no blank.

    >>> join_sentences(["Two.", "", "Three."]), join_sentences(["二。", "三。"])
    ('Two. Three.', '二。三。')
    """
    pieces: list[str] = []
    for sentence in filter(None, sentences):
        pieces += [space_after(pieces[-1]), sentence] if pieces else [sentence]
    return "".join(pieces)


LAST_COMBINING_MARK = 0x1FFFF  # behind it are variation selectors alone, and no planes with letters that have marks


@cache
def combining_marks() -> str:
    """All that stands on or beside a letter and is none, for `re`: the vowels of Hindi and Thai are marks."""
    return "".join(c for c in map(chr, range(LAST_COMBINING_MARK + 1)) if unicodedata.category(c)[0] == "M")


@cache
def word_pattern(joints: str = "") -> re.Pattern[str]:
    """A word of running text, punctuation apart: letters with their marks and digits, between which `joints` may stand.

    >>> word_pattern().findall("हिन्दी, 二犬."), word_pattern("-").findall("-to-do")
    (['हिन्दी', ',', '二', '犬', '.'], ['-', 'to-do'])
    """
    letters = rf"(?:[^\W{UNSPACED}]|[{combining_marks()}])+"
    joined = rf"(?:[{joints}]{letters})*" if joints else ""
    return re.compile(rf"[{UNSPACED}][{combining_marks()}]*|{letters}{joined}|[^\w\s]")

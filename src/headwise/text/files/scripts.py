r"""Words and letters of any script: scripts without spaces, and combining marks, which `\w` leaves out."""

import re
import unicodedata
from collections.abc import Iterable
from functools import cache

# Ranges for the brackets of a regular expression.
SOUTH_ASIAN = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\uaa60-\uaa7f"  # Thai, Lao, Burmese, Khmer
KANA = "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"
HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
UNSPACED = SOUTH_ASIAN + KANA + HAN
LAST_COMBINING_MARK = 0x1FFFF  # only variation selectors follow
# Compiled when they are first used: that takes a hundredth of a cold start.
_UNSPACED_END = f"[{KANA}{HAN}\u3000-\u303f\uff01-\uff60]"  # with CJK punctuation and full width
_WORD = f"[{UNSPACED}]|[^\\s{UNSPACED}]+"


def split_words(text: str) -> list[str]:
    """Split a text at spaces; each letter of a script without spaces is a word.

    >>> split_words("Two dogs, 二犬")
    ['Two', 'dogs,', '二', '犬']
    """
    return re.findall(_WORD, text)


@cache
def word_pattern(joints: str = "") -> re.Pattern[str]:
    """Matches words and punctuation. A word is letters with combining marks and digits; `joints` may join two of them.

    >>> word_pattern().findall("हिन्दी, 二犬."), word_pattern("-").findall("-to-do")
    (['हिन्दी', ',', '二', '犬', '.'], ['-', 'to-do'])
    """
    letters = rf"(?:[^\W{UNSPACED}]|[{combining_marks()}])+"
    joined = rf"(?:[{joints}]{letters})*" if joints else ""
    return re.compile(rf"[{UNSPACED}][{combining_marks()}]*|{letters}{joined}|[^\w\s]")


@cache
def combining_marks() -> str:
    """All combining marks (Unicode category M), for a regular expression: the vowels of Hindi and Thai are marks."""
    return "".join(c for c in map(chr, range(LAST_COMBINING_MARK + 1)) if unicodedata.category(c)[0] == "M")


def latin_length(text: str) -> float:
    """Estimated length of a text in an alphabet: 3 characters for a Chinese one, 1.5 for a Japanese kana.

    Least squares against English: 2.8 and 1.4 in Tatoeba's Japanese, 3.4 and 1.5 in Python's documentation.
    """
    return len(text) + 2 * len(re.findall(f"[{HAN}]", text)) + 0.5 * len(re.findall(f"[{KANA}]", text))


def space_after(sentence: str) -> str:
    """The separator between this sentence and the next: empty in Chinese and Japanese, otherwise a space."""
    return "" if re.match(_UNSPACED_END, sentence[-1:]) else " "


def join_sentences(sentences: Iterable[str]) -> str:
    """Join sentences, skipping empty ones.

    >>> join_sentences(["Two.", "", "Three."]), join_sentences(["二。", "三。"])
    ('Two. Three.', '二。三。')
    """
    parts: list[str] = []
    for sentence in filter(None, sentences):
        parts += [space_after(parts[-1]), sentence] if parts else [sentence]
    return "".join(parts)

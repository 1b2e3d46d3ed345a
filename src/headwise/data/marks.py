r"""Letters and the marks on them, which `\w` of `re` leaves out: words of running text in any script."""

import re
import unicodedata
from functools import cache

from headwise.data.scripts import UNSPACED

LAST_MARK = 0x1FFFF  # behind it are variation selectors alone, and no planes with letters that have marks


@cache
def marks() -> str:
    """All that stands on or beside a letter and is none, for `re`: the vowels of Hindi and Thai are marks."""
    return "".join(c for c in map(chr, range(LAST_MARK + 1)) if unicodedata.category(c)[0] == "M")


@cache
def word_pattern(joints: str = "") -> re.Pattern[str]:
    """A word of running text, punctuation apart: letters with their marks and digits, between which `joints` may stand.

    >>> word_pattern().findall("हिन्दी, 二犬."), word_pattern("-").findall("-to-do")
    (['हिन्दी', ',', '二', '犬', '.'], ['-', 'to-do'])
    """
    letters = rf"(?:[^\W{UNSPACED}]|[{marks()}])+"
    joined = rf"(?:[{joints}]{letters})*" if joints else ""
    return re.compile(rf"[{UNSPACED}][{marks()}]*|{letters}{joined}|[^\w\s]")

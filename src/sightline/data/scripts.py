"""Scripts that have no blanks between words, as ranges for the brackets of a regular expression."""

import re
from collections.abc import Iterable

SOUTH_ASIAN = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\uaa60-\uaa7f"  # Thai, Lao, Burmese, Khmer
KANA = "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"
HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
UNSPACED = SOUTH_ASIAN + KANA + HAN
_UNSPACED_SENTENCE = re.compile(f"[{KANA}{HAN}\u3000-\u303f\uff01-\uff60]$")  # ends so: CJK punctuation, full width


def blank_after(sentence: str) -> str:
    """What stands between it and the next one: nothing in Chinese and Japanese."""
    return "" if _UNSPACED_SENTENCE.search(sentence) else " "


def running(sentences: Iterable[str]) -> str:
    """One text of them; empty ones leave no blank.

    >>> running(["Two.", "", "Three."]), running(["二。", "三。"])
    ('Two. Three.', '二。三。')
    """
    text = ""
    for sentence in filter(None, sentences):
        text += (blank_after(text) if text else "") + sentence
    return text

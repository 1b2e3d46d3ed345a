"""Text without spaces between words: the tokenizer for BLEU, and TER of letters.

sacreBLEU's TER splits Chinese and Japanese into letters, but not Thai, Lao, Burmese, Khmer and Tibetan.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from headwise.data.scripts import HAN, SOUTH_ASIAN, UNSPACED
from headwise.evaluate.measure import Measure, References

TIBETAN = "\u0f00-\u0fff"  # which marks the ends of syllables, not of words
RUN_ON = f"[{UNSPACED}{TIBETAN}]"
_WHOLE = re.compile(f"([{SOUTH_ASIAN}{TIBETAN}])")


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

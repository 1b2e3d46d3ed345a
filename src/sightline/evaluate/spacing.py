"""Whether there are spaces between the words of a text, on which most tokenizers of BLEU rely."""

import re
from collections.abc import Sequence

from sightline.data.scripts import HAN, UNSPACED

TIBETAN = "\u0f00-\u0fff"  # which marks where a syllable ends, not a word
RUN_ON = f"[{UNSPACED}{TIBETAN}]"


def bleu_tokenizer(references: Sequence[str]) -> str:
    """sacreBLEU's tokenizer for BLEU against these lines: "13a", its default, where there are spaces between words.

    "13a" would take each clause of other texts for one word: they get "zh" if they are Chinese, else "char", which
    need nothing installed. "ja-mecab", usual for Japanese, has to be asked for. Text that has been cut into words has
    its spaces.

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

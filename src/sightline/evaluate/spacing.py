"""Whether there are spaces between the words of a text, on which most tokenizers of BLEU rely."""

import re
from collections.abc import Sequence

# Scripts that are written without.
SOUTH_ASIAN = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\uaa60-\uaa7f"  # Thai, Lao, Tibetan, Burmese, Khmer
KANA = "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"
HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
ANY = f"[{SOUTH_ASIAN}{KANA}{HAN}]"


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
    south_asian, kana, han = (len(re.findall(f"[{script}]", text)) for script in (SOUTH_ASIAN, KANA, HAN))
    run_on = south_asian + kana + han
    letters, spaces = len(re.findall(r"[^\W\d_]", text)), len(re.findall(f"(?<={ANY})[ \u3000](?={ANY})", text))
    if 4 * run_on < letters or 6 * spaces > run_on or not run_on:
        return "13a"
    return "zh" if 20 * (south_asian + kana) < run_on else "char"

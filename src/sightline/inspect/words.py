"""Which pieces spell which word: words are what blanks separate, as `str.split` sees them.

Subword tokenizers cut words as they please, and bytes where a character is rare; alignments and pages speak of words.
Not here: the tokenizer itself (`data/side.py`).
"""

import re
from collections.abc import Sequence

import numpy as np

from sightline.data.side import Side
from sightline.data.tokenizer import BYTES
from sightline.inspect.record import Word

SENTENCEPIECE_BLANK = "▁"
SENTENCEPIECE_BYTE = re.compile("<0x([0-9A-F]{2})>")  # a byte that is no text on its own


def words(tokenizer: Side, tokens: Sequence[int]) -> list[Word]:
    """The words that `tokens` spell, in order, and which of them spell each.

    A piece that is a blank and nothing else counts with the word after it. Marks (such as the end mark) are no words
    and spell nothing; a token declared by the user, such as `<2de>`, is a word of its own.
    """
    spelled = [spelling(tokenizer, token) for token in tokens]
    owner = np.repeat(np.arange(len(tokens)), [len(part) for part in spelled])  # of each byte
    text = b"".join(spelled).decode("utf-8", errors="surrogateescape")
    found: list[Word] = []
    stop = 0
    for match in re.finditer(r"\S+", text):
        first, end = (len(_to_bytes(text[:place])) for place in match.span())
        start = min(stop, int(owner[first]))  # the same piece where it spells the end of one word and all of the next
        while not spelled[start]:  # marks in front of a text
            start += 1
        stop = int(owner[end - 1]) + 1
        found.append(Word(_to_bytes(match.group()).decode("utf-8", errors="replace"), start, stop))
    return found


def spelling(tokenizer: Side, token: int) -> bytes:
    """What a token adds to a text, in UTF-8, which may break off within a character."""
    if token in tokenizer.declared:
        return f" {tokenizer.declared[token]} ".encode()
    if tokenizer.is_mark(token):
        return b""
    piece = tokenizer.piece(token)
    if tokenizer.in_bytes:
        return bytes(BYTES[letter] for letter in piece if letter in BYTES)
    if byte := SENTENCEPIECE_BYTE.fullmatch(piece):
        return bytes.fromhex(byte.group(1))
    return piece.replace(SENTENCEPIECE_BLANK, " ").encode()


def _to_bytes(text: str) -> bytes:
    return text.encode("utf-8", errors="surrogateescape")

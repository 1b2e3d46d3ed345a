"""Which tokens spell which word; words are separated by blanks, as in `str.split`.

Subword tokenizers split words anywhere, and rare characters into bytes; alignments and pages use words. See
`text/tokens/pair_tokenizer.py` for the tokenizer.
"""

import re
from collections.abc import Sequence

import numpy as np

from headwise.text.tokens.pair_tokenizer import PairTokenizer
from headwise.text.tokens.tokenizer import BYTES
from headwise.view.record import Word

SENTENCEPIECE_BLANK = "▁"
SENTENCEPIECE_BYTE = re.compile("<0x([0-9A-F]{2})>")  # a byte that is not a character by itself


def words_spelled(tokenizer: PairTokenizer, tokens: Sequence[int]) -> list[Word]:
    """The words that `tokens` spell, in order, with the tokens of each.

    A token that is only a blank belongs to the word after it. Special tokens (such as the end token) spell nothing; a
    token declared by the user, such as `<2de>`, is a word of its own.
    """
    spelled = [spelling(tokenizer, token) for token in tokens]
    owner = np.repeat(np.arange(len(tokens)), [len(part) for part in spelled])  # of each byte
    text = b"".join(spelled).decode("utf-8", errors="surrogateescape")
    found: list[Word] = []
    stop = 0
    for match in re.finditer(r"\S+", text):
        first, end = (len(_to_bytes(text[:end])) for end in match.span())
        start = min(stop, int(owner[first]))  # the same token if it spells the end of one word and all of the next
        while not spelled[start]:  # special tokens in front of a text
            start += 1
        stop = int(owner[end - 1]) + 1
        word = _to_bytes(match.group()).decode("utf-8", errors="replace")
        found.append(Word(word, start, stop, tokens[start] in tokenizer.declared))
    return found


def spelling(tokenizer: PairTokenizer, token: int) -> bytes:
    """The bytes that a token adds to a text, in UTF-8; they may end within a character."""
    if token in tokenizer.declared:
        return f" {tokenizer.declared[token]} ".encode()
    if tokenizer.is_special(token):
        return b""
    piece = tokenizer.piece(token)
    if tokenizer.in_bytes:
        return bytes(BYTES[letter] for letter in piece if letter in BYTES)
    if byte := SENTENCEPIECE_BYTE.fullmatch(piece):
        return bytes.fromhex(byte.group(1))
    return piece.replace(SENTENCEPIECE_BLANK, " ").encode()


def _to_bytes(text: str) -> bytes:
    return text.encode("utf-8", errors="surrogateescape")

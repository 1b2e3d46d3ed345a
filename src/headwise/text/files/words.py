"""A cache of the token ids of words, which speeds up `tokenizer.py`.

Most of the time of the `tokenizers` library goes into splitting a text into words by a regular expression. Texts in
Latin, Greek or Cyrillic letters, ASCII digits and ordinary punctuation are split here, by Python's `re`, and the ids of
each word are cached. Other texts are left to the library.
"""

import re
import sys
import unicodedata
from collections.abc import Iterable

import tokenizers

REMEMBERED_WORDS = 200_000
LAST = 0x52F  # end of the Cyrillic blocks; other scripts follow
PUNCTUATION = "\u2010\u2011\u2012\u2013\u2014\u2018\u2019\u201a\u201c\u201d\u201e\u2022\u2026\u2039\u203a\u20ac\u2122"


def _characters(category: str) -> str:
    """All characters up to `LAST` of a major Unicode category, escaped for a regular expression."""
    characters = (chr(code) for code in range(0x21, LAST + 1) if unicodedata.category(chr(code))[0] == category)
    return re.escape("".join(characters))


LETTERS = _characters("L")
MARKS = _characters("P") + _characters("S") + PUNCTUATION
PLAIN = re.compile(f"[ 0-9{LETTERS}{MARKS}]+")
# `tokenizer.WORDS` for such texts.
WORD = re.compile(f" ?[{LETTERS}]+| ?[0-9]| ?([{MARKS}])\\1*| ")


def cut(text: str) -> list[str] | None:
    """Split a plain text in normal form NFC into words; None for any other text.

    >>> cut(" Ein Hund, 12!!"), cut("日本")
    ([' Ein', ' Hund', ',', ' 1', '2', '!!'], None)
    """
    if not PLAIN.fullmatch(text) or not (text.isascii() or unicodedata.is_normalized("NFC", text)):
        return None
    return [match.group() for match in WORD.finditer(text)]


class WordTable:
    """Caches the token ids of words."""

    def __init__(self, model: tokenizers.models.Model, letters: dict[int, str]) -> None:
        """`letters` is the byte alphabet: the character for each byte."""
        self.model = model
        self.letters = letters
        self.ids: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int] | None:
        """The ids of a text with a space prepended; None if the library must tokenise it."""
        words = cut(" " + text)
        if words is None:
            return None
        known = self.ids
        tokens: list[int] = []
        for word in words:
            tokens += known[word] if word in known else self.look_up(word)
        return tokens

    def look_up(self, word: str) -> list[int]:
        """Compute and cache the ids of a new word."""
        if len(self.ids) >= REMEMBERED_WORDS:
            self.ids.clear()
        tokens = [token.id for token in self.model.tokenize("".join(self.letters[byte] for byte in word.encode()))]
        self.ids[sys.intern(word)] = tokens
        return tokens


def split_at(tokens: Iterable[str], text: str) -> list[str]:
    """Split a text at special tokens, which are kept; the longest match wins.

    >>> split_at(["<2de>"], "<2de> 3 May")
    ['<2de>', ' 3 May']
    """
    pattern = "|".join(re.escape(token) for token in sorted(tokens, key=len, reverse=True))
    return [part for part in re.split(f"({pattern})", text) if part] if pattern else [text]


def byte_alphabet() -> dict[str, int]:
    """GPT-2's mapping between characters and bytes: visible bytes map to themselves, others to U+0100 and following."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(0x100 + i): byte for i, byte in enumerate(hidden)}


BYTES = byte_alphabet()

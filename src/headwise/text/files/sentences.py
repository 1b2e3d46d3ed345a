"""Compare sentences by their letters and digits, ignoring case, punctuation and spaces.

A key is a 64-bit hash, so millions of sentences are compared without keeping their texts. Among ten million sentences
the probability that two different ones share a key is 3 in a million.
"""

import re
import unicodedata
from functools import cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from headwise.text.files.scripts import combining_marks

SentenceKeys = NDArray[np.uint64]

ASCII_NOT_LETTERS = bytes(code for code in range(128) if not chr(code).isalnum())
EMPTY = 0  # the key of a blank text


@cache
def _not_letters() -> re.Pattern[str]:
    """Matches what is neither letter nor digit nor combining mark."""
    return re.compile(f"[^\\w{combining_marks()}]+")


def normalize_sentence(text: str) -> str:
    """The letters and digits of a text, case-folded; a text without any is only stripped.

    >>> normalize_sentence("  Don't STOP, now! "), normalize_sentence("?!"), normalize_sentence("  ")
    ('dontstopnow', '?!', '')
    """
    if text.isascii():
        letters = text.lower().encode().translate(None, ASCII_NOT_LETTERS).decode()
    else:
        letters = _not_letters().sub("", unicodedata.normalize("NFKC", text).casefold()).replace("_", "")
    return letters or text.strip()


def sentence_key(text: str) -> int:
    """A 64-bit key of a sentence; `EMPTY` for a blank line."""
    letters = normalize_sentence(text)
    return int.from_bytes(blake2b(letters.encode("utf-8"), digest_size=8).digest(), "little") or 1 if letters else EMPTY


def splitmix64(keys: SentenceKeys) -> SentenceKeys:
    """Permute keys pseudo-randomly: the finalizer of SplitMix64 (Steele et al. 2014, figure 16).

    >>> splitmix64(np.array([1, 2], np.uint64)).tolist()
    [6238072747940578789, 15839785061582574730]
    """
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))


def pair_keys(src: SentenceKeys, tgt: SentenceKeys) -> SentenceKeys:
    """The key of each pair, from those of its sides."""
    return splitmix64(src + splitmix64(tgt))

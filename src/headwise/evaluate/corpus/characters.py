"""Faulty characters of a text, and the scripts of its letters."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache

MOJIBAKE, REPLACEMENT, CONTROL = "bytes read in a wrong encoding", "replacement characters", "control characters"
INVISIBLE, NO_BREAK, DECOMPOSED = "invisible characters", "no-break spaces", "letters and accents apart (not NFC)"
ENTITY, BLANKS = "HTML entities", "leading, trailing or repeated spaces"
ADVICE = {
    MOJIBAKE: "UTF-8 that was read as Windows-1252, such as Ã¤ for ä: make the file again, or repair it with ftfy",
    REPLACEMENT: "U+FFFD stands where a character was lost: go back to the original",
    CONTROL: "remove them",
    INVISIBLE: "zero-width and soft hyphens, marks of direction: remove them, unless the language needs them",
    NO_BREAK: "as French has them before ! and ?; replace them if the texts to translate will not have them",
    DECOMPOSED: "data.normalization, nfc unless set, composes them for training; other programs may not",
    ENTITY: "write the characters themselves: &amp; is &, &quot; is a quotation mark",
    BLANKS: "harmless in training, which keeps them, but translations will have them, too",
}

# UTF-8 whose bytes were read as Windows-1252 (0x80 to 0x9f) or Latin-1. A lead that is a letter of everyday text counts
# only together with others: „Spaß“ and CAFÉ» are correct.
_NEXT = "[\u0080-\u00bf" + bytes(range(0x80, 0xA0)).decode("cp1252", "ignore") + "]"
_MOJIBAKE = re.compile(
    f"\u00c3[\u0080-\u00bf\u0192\u201a\u201e\u2026\u2020\u2021\u02c6\u2030\u0160\u0152\u017d\u2022\u02dc\u2122\u0161"
    f"\u0153\u017e\u0178]|\u00c2[\u0080-\u00a9\u00ac-\u00ba]|\u00e2[\u20ac\u0080]{_NEXT}|(?:[\u00c4-\u00df]{_NEXT}){{3}}"
    f"|(?:[\u00e0-\u00ef]{_NEXT}{{2}}){{2}}|\u00f0\u0178{_NEXT}{{2}}"
)
_ENTITY = re.compile(r"&(?:#\d+|#x[0-9a-fA-F]+|amp|lt|gt|quot|apos|nbsp);")
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
_BLANK_RUN = re.compile(r"\s\s")
_NO_BREAK = {"\u00a0", "\u202f", "\u2007", "\u2060"}
_JOINERS = {"\u200c", "\u200d"}  # which Persian, Hindi and emoji are written with
# The languages that write with several of these write them side by side.
_EAST_ASIAN = {"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "BOPOMOFO", "IDEOGRAPHIC"}
EAST_ASIAN = "Chinese or Japanese"


@cache
def kind(character: str) -> str:
    """The script of a letter, the fault of another character, or "".

    >>> kind("ä"), kind("犬"), kind("\\u212a"), kind("7"), kind("\\u00ad")
    ('Latin', 'Chinese or Japanese', 'Latin', '', 'invisible characters')
    """
    category = unicodedata.category(character)
    if category[0] == "L":
        plain = unicodedata.normalize("NFKC", character)[0]  # of K for Kelvin and of letters of full width
        first = unicodedata.name(plain, "UNKNOWN").split()[0]
        return EAST_ASIAN if first in _EAST_ASIAN else first.capitalize()
    if character == "\ufffd":
        return REPLACEMENT
    if character in _NO_BREAK:
        return NO_BREAK
    if category == "Cf":
        return "" if character in _JOINERS else INVISIBLE
    return CONTROL if category == "Cc" and character != "\t" else ""


def check_characters(text: str) -> tuple[set[str], frozenset[str]]:
    """The faults of a text, and the scripts of its letters."""
    faults = set(_plain_faults(text))
    if text.isascii():
        return faults, frozenset(["Latin"] if text.lower() != text.upper() else [])
    kinds = set(map(kind, text)) - {""}
    faults |= kinds & ADVICE.keys()
    if _MOJIBAKE.search(text):
        faults.add(MOJIBAKE)
        faults.discard(NO_BREAK)  # the second half of a broken à
        faults.discard(CONTROL)
    if not unicodedata.is_normalized("NFC", text):
        faults.add(DECOMPOSED)
    return faults, frozenset(kinds - ADVICE.keys())


def _plain_faults(text: str) -> Iterator[str]:
    """The faults that ASCII text can have."""
    if _CONTROLS.search(text):
        yield CONTROL
    if "&" in text and _ENTITY.search(text):
        yield ENTITY
    if text and (text[0].isspace() or text[-1].isspace() or _BLANK_RUN.search(text)):
        yield BLANKS


def position(text: str, fault: str) -> int:
    """The position of the first occurrence of a fault in a text; 0 for any other title.

    >>> position("a dog &amp; cat", ENTITY), position("cafe\u0301", DECOMPOSED)
    (6, 4)
    """
    patterns = {MOJIBAKE: _MOJIBAKE, ENTITY: _ENTITY, BLANKS: re.compile(r"\s\s|^\s|\s$")}
    if fault in patterns:
        found = patterns[fault].search(text)
        return found.start() if found else 0
    if fault == DECOMPOSED:
        return next((i for i, c in enumerate(text) if unicodedata.combining(c)), 0)
    return next((i for i, c in enumerate(text) if fault in ADVICE and kind(c) == fault), 0)


def scripts(counts: Counter[str]) -> dict[str, int]:
    """Letters of each script, most frequent first.

    >>> scripts(Counter("A dog, собака"))
    {'Cyrillic': 6, 'Latin': 4}
    """
    found = Counter[str]()
    for character, count in counts.items():
        name = kind(character)
        if name and name not in ADVICE:
            found[name] += count
    return dict(found.most_common())


def usual(found: dict[str, int]) -> frozenset[str]:
    """The scripts of at least a tenth of the letters."""
    return frozenset(name for name, count in found.items() if 10 * count >= sum(found.values()))


def visible(texts: Iterable[str]) -> str:
    """The text with invisible characters as code points.

    >>> visible("a\\u00a0b")
    'a<U+00A0>b'
    """
    hidden = {NO_BREAK, INVISIBLE, CONTROL}
    return "".join(f"<U+{ord(c):04X}>" if kind(c) in hidden else c for c in texts)

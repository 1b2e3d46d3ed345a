"""Texts cut into sentences and put together again: a model that learnt sentences is given sentences.

Where a sentence ends says `sentencex`, which knows the abbreviations of some forty languages; files and the server's
texts are cut here. Line ends of a text stay where they are, and so do the blanks between its sentences. Not here: texts
that are too long for a model (`decode.translator.split_text`).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sightline.data.scripts import blank_after
from sightline.errors import UserError
from sightline.localisation.unit import Code, Parts, joined, words

HOLDER = 0xF0000  # private characters that stand for codes while a text is cut
MOST_CODES = 0x10FFFF - HOLDER  # of a text that is cut
STRETCH = 2000  # characters that are cut at once
BLANK = re.compile(r"\s")  # one of several bytes between an initial and its full stop makes sentencex 1.0 panic
LINES = re.compile(r"((?<!\s)\s*\n\s*)")


@dataclass(frozen=True)
class CutSentence:
    """One to translate, and what is between it and the next."""

    parts: Parts
    behind: str  # blanks, line ends
    goes_on: bool = False  # whether the next one stands in the same line

    def behind_translation(self, text: str) -> str:
        """What stands behind `text` in its place: Chinese and Japanese have no blank there, other languages have."""
        same = blank_after(words(self.parts)) == blank_after(text)
        return self.behind if same or not (text and self.goes_on) else blank_after(text)


def sentences(parts: Parts, language: str) -> tuple[str, list[CutSentence]]:
    """The blanks before the first sentence, and every sentence with what follows it; none for a text without words."""
    codes = [part for part in parts if isinstance(part, Code)]
    if len(codes) > MOST_CODES:
        return "", [CutSentence(parts, "")]
    holders = iter(range(HOLDER, HOLDER + len(codes)))
    text = "".join(part if isinstance(part, str) else chr(next(holders)) for part in parts)
    start = len(text) - len(text.lstrip())
    found: list[CutSentence] = []
    for number, line in enumerate(LINES.split(text[start:])):
        if number % 2:
            found.append(CutSentence((), line))
            continue
        at, first = 0, len(found)
        for size in _sizes(BLANK.sub(" ", line), language or "en"):
            piece = line[at : at + size]
            at += size
            body = piece.rstrip()
            found.append(CutSentence(_with(codes, body), piece[len(body) :]))
        found[first:-1] = [replace(one, goes_on=True) for one in found[first:-1]]
    return text[:start], found


def _sizes(line: str, language: str) -> Iterator[int]:
    """How many characters each sentence of a line has, with the blanks behind it.

    A long line is cut stretch by stretch, each from where the last sentence of the one before begins, because
    `sentencex` needs time in proportion to the square of what it is given.
    """
    try:
        from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue]  # of a compiled module
    except ImportError:
        raise UserError("documents are cut into sentences by sentencex: pip install 'sightline[files]'") from None
    at = begun = 0  # `begun` characters of a sentence that is longer than a stretch
    while at < len(line):
        stretch = line[at : at + STRETCH]
        sizes = [len(cut) for cut in segment(language, stretch)] or [len(stretch)]
        at += sum(sizes)
        if at >= len(line):
            yield from (begun + sizes[0], *sizes[1:])
        elif len(sizes) == 1:
            begun += sizes[0]
        else:
            yield from (begun + sizes[0], *sizes[1:-1])
            at, begun = at - sizes[-1], 0


def _with(codes: list[Code], text: str) -> Parts:
    pieces = re.split(f"([{chr(HOLDER)}-{chr(HOLDER + len(codes))}])", text)
    return joined([codes[ord(piece) - HOLDER] if i % 2 else piece for i, piece in enumerate(pieces)])

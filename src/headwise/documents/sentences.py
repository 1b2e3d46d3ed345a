"""Sentence splitting, and joining of translated sentences.

`sentencex` finds sentence ends; it knows the abbreviations of about forty languages. Line ends of a text and blanks
between its sentences stay. A sentence of more than `MAX_SENTENCE` characters is split, so that a server can translate
others between its parts. See `decode.translator.split_text` for sentences that are too long for a model.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, islice

from headwise.documents.markup.inline_tree import are_apart, is_inside_word
from headwise.documents.unit import CLOSES, POINT, Code, Parts, join_parts, without_inline_codes
from headwise.errors import UserError
from headwise.runtime.search.translator import split_near_middle
from headwise.text.files.scripts import space_after

STAND_INS = range(0xF0000, 0x110000)  # private characters that stand for codes during splitting
MAX_CHARACTERS = 2000  # characters of a window
MAX_SENTENCE = 1000  # characters of a sentence
BLANK = re.compile(r"\s")  # sentencex 1.0 panics at a multi-byte blank after an initial
LINES = re.compile(r"((?<!\s)\s*\n\s*)")


@dataclass(frozen=True)
class SentenceSpan:
    """A sentence to translate, and what follows it."""

    parts: Parts
    behind: str  # blanks, line ends
    same_line: bool = False  # whether the next sentence is in the same line

    def behind_translation(self, text: str) -> str:
        """The separator after the translation `text`: no blank in Chinese and Japanese, a blank in other languages."""
        same = space_after(without_inline_codes(self.parts)) == space_after(text)
        return self.behind if same or not (text and self.same_line) else space_after(text)


def split_into_sentences(parts: Parts, language: str) -> tuple[str, list[SentenceSpan]]:
    """The blanks before the first sentence, and every sentence with what follows it; none for a text without words."""
    codes = [part for part in parts if isinstance(part, Code)]
    used = {letter for part in parts if isinstance(part, str) for letter in part}
    free = islice((letter for letter in map(chr, STAND_INS) if letter not in used), len(codes))
    code_of = dict(zip(free, codes, strict=False))
    if len(code_of) < len(codes):
        return "", [SentenceSpan(parts, "")]
    stand_ins = iter(code_of)
    text = "".join(part if isinstance(part, str) else next(stand_ins) for part in parts)
    start = len(text) - len(text.lstrip())
    found: list[SentenceSpan] = []
    for number, line in enumerate(LINES.split(text[start:])):
        if number % 2:
            found.append(SentenceSpan((), line))
            continue
        at, first = 0, len(found)
        for end in _ends(line, code_of, language or "en"):
            piece = line[at:end]
            at = max(at, end)
            if not piece:
                continue
            body = piece.rstrip()
            found.append(SentenceSpan(_with_codes(code_of, body), piece[len(body) :]))
        found[first:-1] = [replace(one, same_line=True) for one in found[first:-1]]
    return text[:start], found


def _ends(line: str, code_of: Mapping[str, Code], language: str) -> Iterator[int]:
    """Where the sentences of a line end: as in the text that a reader sees, without the codes of formats."""
    shown, places = _shown(line, code_of)
    for end in accumulate(_limited(shown, _sizes(BLANK.sub(" ", shown), language))):
        last = end - 1
        while last >= 0 and shown[last].isspace():
            last -= 1
        yield _behind_codes(line, places[last] + 1 if last >= 0 else 0, code_of) if end < len(shown) else len(line)
    if not shown:
        yield len(line)


def _shown(line: str, code_of: Mapping[str, Code]) -> tuple[str, list[int]]:
    """The characters of a line that a reader sees, and the place of each: no ends of spans, and no notes behind words.

    Placeholders, and points with a blank before them, stand for words.
    """
    shown, places, between = list[str](), list[int](), -1
    for at, letter in enumerate(line):
        code = code_of.get(letter)
        if code and (code.kind != POINT or is_inside_word(code)):
            continue
        if code and code.inline and shown and not shown[-1].isspace():
            between = at
            continue
        if between >= 0 and not letter.isspace() and are_apart(shown[-1], letter):
            shown.append(" ")
            places.append(between)
        shown.append(letter)
        places.append(at)
        between = -1
    return "".join(shown), places


def _behind_codes(line: str, end: int, code_of: Mapping[str, Code]) -> int:
    """The end of a sentence with the points that touch it, the ends of spans that follow it, and blanks."""
    for at in range(end, len(line)):
        code = code_of.get(line[at])
        if code and (code.kind == CLOSES or (code.kind == POINT and code.inline and at == end)):
            end = at + 1
        elif code or not line[at].isspace():
            break
    while end < len(line) and line[end].isspace():
        end += 1
    return end


def _sizes(line: str, language: str) -> Iterator[int]:
    """The number of characters of each sentence of a line, with the blanks after it.

    A long line is split in windows, each starting at the last sentence of the one before, because `sentencex` takes
    quadratic time.
    """
    try:
        from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue]  # of a compiled module
    except ImportError:
        raise UserError('splitting into sentences needs sentencex: pip install "headwise[files]"') from None
    at = begun = 0  # `begun`: characters of a sentence that is longer than a window
    while at < len(line):
        window = line[at : at + MAX_CHARACTERS]
        sizes = [len(sentence) for sentence in segment(language, window)] or [len(window)]
        at += sum(sizes)
        if at >= len(line):
            yield from (begun + sizes[0], *sizes[1:])
        elif len(sizes) == 1:
            begun += sizes[0]
        else:
            yield from (begun + sizes[0], *sizes[1:-1])
            at, begun = at - sizes[-1], 0


def _limited(line: str, sizes: Iterable[int]) -> Iterator[int]:
    """The sizes of the sentences of a line, long ones in parts."""
    at = 0
    for size in sizes:
        yield from _part_sizes(line[at : at + size])
        at += size


def _part_sizes(sentence: str) -> list[int]:
    if len(sentence.rstrip()) <= MAX_SENTENCE:
        return [len(sentence)]
    _, start = split_near_middle(sentence.rstrip())
    return _part_sizes(sentence[:start]) + _part_sizes(sentence[start:])


def _with_codes(code_of: Mapping[str, Code], text: str) -> Parts:
    pieces: list[str | Code] = []
    start = 0
    for at, letter in enumerate(text):
        if letter in code_of:
            pieces += [text[start:at], code_of[letter]]
            start = at + 1
    return join_parts([*pieces, text[start:]])

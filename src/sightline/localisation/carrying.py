"""Codes through a translation: as marks that a model copies, or put back where the words beside them went.

`⓵` to `⓾` stand for the codes of a sentence. A model that was trained on memories (`memory.py`) has them for pieces and
copies them; texts that hold them already are left alone. What any other model translates is the text without its codes,
and each goes where the word it stood at went, by the links of the attention (as Bergamot's `html.cpp` and Moses do it).
"""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from sightline.data.links import Link
from sightline.localisation.unit import Code, Parts, joined, plain, words

MARKS = "⓵⓶⓷⓸⓹⓺⓻⓼⓽⓾"
MARK = re.compile(f"[{MARKS}]")
WORD = re.compile(r"\S+")
TRAILING = re.compile(r"(?<!\W)\W+$")
MOST_COPIED = 100  # different codes of a sentence, each of which is looked for at every character


def marked(parts: Parts) -> str | None:
    """The text with a mark for each code; None if it has more codes than there are marks, or marks of its own.

    >>> marked(("Delete ", Code("{n}"), " files?"))
    'Delete ⓵ files?'
    """
    codes = codes_of(parts)
    if len(codes) > len(MARKS) or any(MARK.search(part) for part in parts if isinstance(part, str)):
        return None
    marks = iter(MARKS)
    return "".join(part if isinstance(part, str) else next(marks) for part in parts)


def unmarked(text: str, codes: Sequence[Code]) -> Parts | None:
    """The parts of a text with marks; None unless it has each of the codes' marks once, and no other.

    >>> unmarked("⓵ Dateien löschen?", [Code("{n}")])
    (Code(text='{n}', inline=False), ' Dateien löschen?')
    """
    if Counter(MARK.findall(text)) != Counter(MARKS[: len(codes)]):
        return None
    pieces = re.split(f"({MARK.pattern})", text)
    return joined([codes[MARKS.index(piece)] if i % 2 else piece for i, piece in enumerate(pieces)])


def marked_pair(source: Parts, target: Parts) -> tuple[str, str] | None:
    """Both sides with the same marks for the codes that both have; what only one has stays as it is written.

    None if they have more in common than there are marks, or a mark is there already.

    >>> marked_pair((Code("%s"), ": ", Code("%d")), (Code("%d"), " - ", Code("%s")))
    ('⓵: ⓶', '⓶ - ⓵')
    """
    common = Counter(codes_of(source)) & Counter(codes_of(target))
    if common.total() > len(MARKS) or MARK.search(plain(source) + plain(target)):
        return None
    marks: dict[Code, list[str]] = defaultdict(list)
    free = iter(MARKS)
    text = "".join(_mark_of(part, common, marks, free) for part in source)
    return text, "".join(_next_of(part, marks) for part in target)


def _mark_of(part: str | Code, left: Counter[Code], marks: dict[Code, list[str]], free: Iterator[str]) -> str:
    """The next mark for a code that is `left` to be marked; other parts as they are written."""
    if isinstance(part, str) or not left[part]:
        return words((part,))
    left[part] -= 1
    marks[part].append(next(free))
    return marks[part][-1]


def _next_of(part: str | Code, marks: dict[Code, list[str]]) -> str:
    """The next of the marks of a code; other parts as they are written."""
    return marks[part].pop(0) if isinstance(part, Code) and marks.get(part) else words((part,))


def copied(text: str, codes: Sequence[Code]) -> Parts | None:
    """The parts of a text in which a model has left every code as it is; None if one is lost or doubled."""
    wanted = Counter(code.text for code in codes)
    if not wanted or len(wanted) > MOST_COPIED or any(code.inline for code in codes):
        return None
    pattern = "|".join(re.escape(code) for code in sorted(wanted, key=len, reverse=True))
    pieces = re.split(f"({pattern})", text)
    if Counter(pieces[1::2]) != wanted:
        return None
    return joined([Code(piece) if i % 2 else piece for i, piece in enumerate(pieces)])


def placed(source: Parts, text: str, links: Collection[Link]) -> Parts:
    """A translation of the text without codes, with each code at the word that its neighbour was linked to.

    A code that touches the word before it and not the one behind goes behind its translation, any other before that of
    the word that follows; where a word has no link, those of the nearest word count.

    >>> source = ("a ", Code("<b>"), "black", Code("</b>"), " dog")
    >>> plain(placed(source, "un chien noir", [(0, 0), (1, 2), (2, 1)]))
    'un chien <b>noir</b>'
    """
    words = [
        (match.start(), match.end(), match.start() + len(TRAILING.sub("", match[0]))) for match in WORD.finditer(text)
    ]
    linked = _Linked(links, len(words))
    found: list[_Placed] = []
    for place, part in _places(source):
        at = _position(place, text, words, linked)
        found.append(_Placed(at, part, place.before.isspace(), place.after.isspace()))
    return _inserted(text, found)


@dataclass(frozen=True)
class _Place:
    """Where a code stands in a source without codes."""

    before: str  # the character before it, and the one behind it
    after: str
    words: int  # that have begun before it
    is_first: bool  # nothing but blanks is before it, or behind it
    is_last: bool


def _places(source: Parts) -> Iterator[tuple[_Place, Code]]:
    """Every code and its place."""
    text = uncut(source)
    first, last = len(text) - len(text.lstrip()), len(text.rstrip())
    starts = [match.start() for match in WORD.finditer(text)]
    at = 0
    for part in source:
        if isinstance(part, Code):
            n_words = bisect_left(starts, at)
            yield _Place(text[max(0, at - 1) : at], text[at : at + 1], n_words, at <= first, at >= last), part
        else:
            at += len(part)


class _Linked:
    """The first and the last word that each source word is linked to."""

    def __init__(self, links: Collection[Link], n_words: int) -> None:
        self._ends: dict[int, tuple[int, int]] = {}
        for i, j in links:
            if j < n_words:
                first, last = self._ends.get(i, (j, j))
                self._ends[i] = min(first, j), max(last, j)
        self._linked = sorted(self._ends)

    def nearest(self, word: int) -> tuple[int, int] | None:
        """Those of a word, or of the nearest that has any, of two as near the first; None where there is no link."""
        at = bisect_left(self._linked, word)
        near = self._linked[max(0, at - 1) : at + 1]
        return self._ends[min(near, key=lambda i: abs(i - word))] if near else None


@dataclass(frozen=True)
class _Placed:
    """A code, and the character of a translation that it goes before."""

    at: int
    code: Code
    blank_before: bool  # in the source
    blank_behind: bool

    @property
    def closes(self) -> bool:
        return self.code.text.startswith(("</", "](", "]["))


def _position(place: _Place, text: str, words: Sequence[tuple[int, int, int]], linked: _Linked) -> int:
    """The character of the translation before which a code goes that has this place in the source.

    `words` of the translation: where each begins, where it ends, and where it ends without its punctuation.
    """
    if place.is_first or not words:
        return 0
    if place.is_last:
        return len(text)
    behind_word = not place.before.isspace()
    word = place.words - behind_word
    ends = linked.nearest(word)
    if ends is None:
        return words[min(word, len(words) - 1)][1 if behind_word else 0]
    if not behind_word:
        return words[ends[0]][0]
    _, end, unpunctuated = words[ends[1]]
    punctuated = place.after.isalnum() or place.after.isspace()  # its comma, if any, is before the code
    return end if punctuated and not place.before.isalnum() else unpunctuated


def _inserted(text: str, found: Sequence[_Placed]) -> Parts:
    """A text with codes in it: no tag closes before it has opened, and blanks are where the source has them."""
    places: list[int] = []
    opened = 0  # the place of the last tag that opens
    for one in found:
        places.append(max(one.at, opened) if one.closes else one.at)
        opened = opened if one.closes else one.at
    pieces: list[str | Code] = []
    done = 0
    for at, number in sorted((at, number) for number, at in enumerate(places)):
        one, left, right = found[number], text[max(0, at - 1) : at], text[at : at + 1]
        pieces += [text[done:at], " " * (one.blank_before and left.isalnum()), one.code]
        pieces.append(" " * (one.blank_behind and right.isalnum()))
        done = at
    return joined([*pieces, text[done:]])


def uncut(parts: Sequence[str | Code]) -> str:
    """The strings among parts in a row."""
    return "".join(part for part in parts if isinstance(part, str))


def codes_of(parts: Parts) -> list[Code]:
    """The codes among parts."""
    return [part for part in parts if isinstance(part, Code)]


def uncoded(parts: Parts) -> str:
    """The text without its codes, with one blank where one was left on either side.

    >>> uncoded(("a ", Code("<b>"), " dog"))
    'a dog'
    """
    return " ".join(uncut(parts).split())

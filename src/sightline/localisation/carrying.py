"""Codes through a translation: as marks that a model copies, or put back where the words beside them went.

`⓵` to `⓾` stand for the codes of a sentence. A model that was trained on memories (`memory.py`) has them for pieces and
copies them; texts that hold them already are left alone. What any other model translates is the text without its codes,
and each goes where the word it stood at went, by the links of the attention (as Bergamot's `html.cpp` and Moses do it).
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sightline.data.links import Link
from sightline.localisation.unit import Code, Parts, joined, plain, words

MARKS = "⓵⓶⓷⓸⓹⓺⓻⓼⓽⓾"
MARK = re.compile(f"[{MARKS}]")
WORD = re.compile(r"\S+")
TRAILING = re.compile(r"\W+$")


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
    if not wanted or any(code.inline for code in codes):
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
    words = [match.span() for match in WORD.finditer(text)]
    linked: dict[int, list[int]] = defaultdict(list)
    for i, j in links:
        linked[i].append(j)
    found: list[_Placed] = []
    for number, part in enumerate(source):
        if isinstance(part, Code):
            before, after = uncut(source[:number]), uncut(source[number + 1 :])
            at = _position(before, after, text, words, linked)
            found.append(_Placed(at, part, before[-1:].isspace(), after[:1].isspace()))
    return _inserted(text, found)


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


def _position(
    before: str, after: str, text: str, words: Sequence[tuple[int, int]], linked: Mapping[int, list[int]]
) -> int:
    """The character of the translation before which a code goes that stands between these two texts of the source."""
    if not before.strip() or not words:
        return 0
    if not after.strip():
        return len(text)
    behind_word = not before[-1:].isspace()
    word = len(before.split()) - behind_word
    links = [j for j in _nearest(word, linked) if j < len(words)]
    if not links:
        return words[min(word, len(words) - 1)][1 if behind_word else 0]
    if not behind_word:
        return words[min(links)][0]
    start, end = words[max(links)]
    punctuated = after[:1].isalnum() or after[:1].isspace()  # the source's word has its comma before the code, or none
    return end if punctuated and not before[-1:].isalnum() else start + len(TRAILING.sub("", text[start:end]))


def _nearest(word: int, linked: Mapping[int, list[int]]) -> list[int]:
    """The links of a word, or of the nearest that has any."""
    return linked[min(linked, key=lambda i: (abs(i - word), i))] if linked else []


def _inserted(text: str, found: Sequence[_Placed]) -> Parts:
    """A text with codes in it: no tag closes before it has opened, and blanks are where the source has them."""
    places: list[int] = []
    for number, one in enumerate(found):
        opened = [places[i] for i in range(number) if one.closes and not found[i].closes]
        places.append(max([one.at, *opened[-1:]]))
    pieces: list[str | Code] = []
    done = 0
    for at, number in sorted((at, number) for number, at in enumerate(places)):
        one, left, right = found[number], text[:at][-1:], text[at : at + 1]
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

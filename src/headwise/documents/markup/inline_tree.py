"""Inline markup as a tree: a sentence is words with spans (`<b>...</b>`), which nest, and points (`{n}`, `<br/>`).

A model gets the words alone (`bare_text`), as a reader sees them: a line break separates words, a bold letter does not.
The smallest units are atoms: words without their punctuation, and single punctuation marks; a code inside a word
divides it. See `inline_pairs.py` for the kinds of codes and `placed_codes.py` for their positions in a translation.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from headwise.documents.unit import CLOSES, OPENS, POINT, Code, Parts, codes_of, join_parts, unescape_html
from headwise.text.files.scripts import space_after

TOKEN = re.compile(r"\s+|\w+|[^\w\s]")
JOINERS = "\u200c\u200d"  # inside words of Persian and of Indian languages
INSIDE_WORDS = re.compile(  # points that a reader does not see
    r"<(?:\w+:)?(?:wbr|bookmark(?:-start|-end|Start|End)?|reference-mark(?:-start|-end)?|soft-page-break|annotation(?:-end)?|"
    r"mrk|a|span|m\d+)\b|<!--|&(?:shy|zwn?j);|&#(?:173|x0*ad);",
    re.IGNORECASE,
)
BEFORE_WORDS = "([{\u00ab\u201c\u2018\u201e\u201a\u00bf\u00a1"  # punctuation that stands at the word behind it
BEHIND_WORDS = ".,:;!?)]}\u00bb\u201d\u2019\u2026%"  # or at the word before it
NEUTRAL = "\"'/-\u2013\u2014~@#&=+*_\\|<>"  # signs that may stand at words on both sides


@dataclass(frozen=True)
class Atom:
    """A word without punctuation, or a punctuation mark."""

    text: str
    word: int  # number of its word
    start: int = 0  # index of its first character in the text

    @property
    def is_word(self) -> bool:
        return _is_letter(self.text[0])


@dataclass
class Gap:
    """The codes between two atoms, or before the first or after the last one."""

    codes: list[int] = field(default_factory=list)  # numbers of codes
    blanks: list[str] = field(default_factory=lambda: [""])  # before, between and after them; one more than codes
    is_blank: bool = False  # whether a model gets a blank here


@dataclass
class InlineSpan:
    """A pair of codes and the words between them; or one or more codes without words (`points`)."""

    opening: int  # number of a code; -1 for the beginning of the sentence
    start: int  # its first atom
    end: int = 0  # after its last atom
    closing: int = -1  # number of a code; -1 for the end of the sentence
    children: "list[InlineSpan]" = field(default_factory=list)
    points: tuple[int, ...] = ()


class Sentence:
    """A source sentence, whose codes have their kinds."""

    def __init__(self, parts: Parts) -> None:
        self.codes = codes_of(parts)
        self.atoms, self.gaps = list[Atom](), [Gap()]  # one gap more than atoms
        numbers = iter(range(len(self.codes)))
        for part in parts:
            if isinstance(part, Code):
                self.gaps[-1].codes.append(next(numbers))
                self.gaps[-1].blanks.append("")
            for token in tokens(part) if isinstance(part, str) else ():
                if token.isspace():
                    self.gaps[-1].blanks[-1] += token
                else:
                    self._add(token)
        self.root = self._tree()

    def _add(self, text: str) -> None:
        gap, before = self.gaps[-1], self.atoms[-1] if self.atoms else None
        gap.is_blank = before is not None and self._is_blank(gap, before.text, text)
        self.atoms.append(Atom(text, before.word + gap.is_blank if before else 0))
        self.gaps.append(Gap())

    def _is_blank(self, gap: Gap, before: str, after: str) -> bool:
        """Whether a model gets a blank in this gap."""
        points = [code for number in gap.codes if (code := self.codes[number]).kind == POINT]
        if not points:
            return any(gap.blanks)
        return (any(gap.blanks) or not all(map(is_inside_word, points))) and are_apart(before[-1], after[0])

    def bare(self) -> str:
        """The words, with single blanks."""
        return "".join(" " * gap.is_blank + atom.text for gap, atom in zip(self.gaps, self.atoms, strict=False))

    @property
    def has_only_outer_codes(self) -> bool:
        """Whether all codes are before the first word or behind the last one, with single blanks between words."""
        return bool(self.atoms) and all(gap.blanks in ([""], [" "]) for gap in self.gaps[1:-1])

    def around(self, text: str) -> Parts:
        """A text with the codes and blanks before the first word, and those behind the last one."""
        pieces: list[str | Code] = []
        for gap in (self.gaps[0], self.gaps[-1]):
            codes = [self.codes[number] for number in gap.codes]
            pieces += [one for pair in zip_longest(gap.blanks, codes, fillvalue="") for one in pair]
            pieces.append(text * (gap is self.gaps[0]))
        return join_parts(pieces)

    def has_blank_before(self, gap: Gap, code: int) -> bool:
        """Whether there is a blank before a code of a gap."""
        return bool(gap.blanks[code - gap.codes[0]])

    def _tree(self) -> InlineSpan:
        """A code whose partner is in another sentence reaches to the beginning or end of this one."""
        opened = [InlineSpan(-1, 0)]
        for at, gap in enumerate(self.gaps):
            for number in gap.codes:
                kind = self.codes[number].kind
                if kind == OPENS:
                    opened.append(InlineSpan(number, at))
                    continue
                closed = InlineSpan(-1, at, at, points=(number,))
                if kind == CLOSES:
                    closed = self._closed(opened.pop(), at, number)
                    opened = opened or [InlineSpan(-1, 0)]
                opened[-1].children.append(closed)
        while len(opened) > 1:
            last = self._closed(opened.pop(), len(self.atoms), -1)
            opened[-1].children.append(last)
        return self._closed(opened[0], len(self.atoms), -1)

    def _closed(self, span: InlineSpan, end: int, closing: int) -> InlineSpan:
        """A span with its end; one without words becomes points."""
        span.end, span.closing = end, closing
        if span.end == span.start and max(span.opening, closing) >= 0:
            inside = [point for child in span.children for point in child.points]
            span.points = tuple(number for number in (span.opening, *inside, closing) if number >= 0)
            span.children = []
        else:
            span.children = list(self._joined(span.children))
        return span

    def _joined(self, children: Sequence[InlineSpan]) -> Iterator[InlineSpan]:
        """Points that touch each other as one."""
        last = InlineSpan(-1, -1)
        for child in children:
            gap = self.gaps[child.start]
            is_next = bool(last.points and child.points) and last.points[-1] + 1 == child.points[0]
            if is_next and child.start == last.start and not self.has_blank_before(gap, child.points[0]):
                last.points += child.points
                continue
            if last.start >= 0:
                yield last
            last = child
        if last.start >= 0:
            yield last


def bare_text(parts: Parts) -> str:
    """The words of a sentence without its codes, with single blanks.

    >>> bare_text(("H", Code("<sub>", kind=OPENS), "2", Code("</sub>", kind=CLOSES), "O,", Code("<br/>"), "a  gas"))
    'H2O, a gas'
    """
    return Sentence(parts).bare()


def same_tree(source: Parts, target: Parts, with_words: bool = True) -> bool:
    """Whether spans are nested in both texts, each in the same one; points only stay in their templates.

    If `with_words`, the same spans must have words.

    >>> bold, end = Code("<b>", kind=OPENS), Code("</b>", kind=CLOSES)
    >>> same_tree((bold, "a", end, " dog"), ("un ", bold, "chien", end)), same_tree((bold, "a", end), (end, "a", bold))
    (True, False)
    """
    return _nesting(source, with_words) == _nesting(target, with_words)


def _nesting(parts: Parts, with_words: bool) -> Counter[tuple[str, ...]]:
    """The pairs of codes, each with the one around it, and whether it has words; codes without a partner."""
    found, opened = Counter[tuple[str, ...]](), [("", False)]
    for part in parts:
        if isinstance(part, str):
            opened[-1] = (opened[-1][0], opened[-1][1] or any(map(str.isalnum, part)))
        elif part.kind == OPENS:
            opened.append((part.text, False))
        elif part.kind == CLOSES:
            opening, has_words = opened.pop() if len(opened) > 1 else ("", False)
            found[opening, part.text, opened[-1][0], "words" * (has_words and with_words)] += 1
            opened[-1] = (opened[-1][0], opened[-1][1] or has_words)
        elif opened[-1][0].startswith("{"):
            found[part.text, opened[-1][0]] += 1
    return found + Counter((opening,) for opening, _ in opened[1:])


def tokens(text: str) -> Iterator[str]:
    """Blanks, words with their combining marks, and punctuation marks."""
    word = ""
    for token in TOKEN.findall(text):
        first = token[0]
        if word and (first in JOINERS or unicodedata.category(first)[0] == "M" or _is_letter(first)):
            word += token
            continue
        if word:
            yield word
        word = token if _is_letter(first) else ""
        if not word:
            yield token
    if word:
        yield word


def _is_letter(character: str) -> bool:
    return character.isalnum() or character == "_"


def is_inside_word(point: Code) -> bool:
    """Whether a reader does not see a point, such as a bookmark, so that it does not separate words."""
    is_letter = point.text.startswith("&") and unescape_html(point.text).isalpha()
    return is_letter or INSIDE_WORDS.match(point.text) is not None


def are_apart(before: str, after: str) -> bool:
    """Whether a blank belongs between two characters when nothing else is between them."""
    if before in BEFORE_WORDS or before in NEUTRAL or after in BEHIND_WORDS or after in NEUTRAL:
        return False
    return bool(space_after(before) or space_after(after))

"""Transfer of inline codes (tags, placeholders) from a source to its translation.

With markers: `⓵` to `⓾` stand for the codes of a sentence. A model that was trained on translation memories
(`memory.py`) has them in its vocabulary and copies them. Texts that contain such characters already are not changed.
Without: the text is translated without its codes, and each code is placed at the translation of its neighbouring word,
by the word alignment (as in Bergamot's `html.cpp` and in Moses).
"""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from headwise.data.links import Link
from headwise.data.pair_tokenizer import PairTokenizer
from headwise.localisation.unit import Code, Parts, join_parts, plain, without_inline_codes

MARKERS = "⓵⓶⓷⓸⓹⓺⓻⓼⓽⓾"
MARKER = re.compile(f"[{MARKERS}]")
WORD = re.compile(r"\S+")
TRAILING = re.compile(r"(?<!\W)\W+$")
MAX_COPIED_CODES = 100  # distinct codes of a sentence: each is searched for at every character


def supports_markers(tokenizer: PairTokenizer) -> bool:
    """Whether a model was trained on markers: the first and most frequent one is a token of the vocabulary.

    A marker that is unknown, or split into bytes, was rare or absent in the training data.
    """
    tokens = tokenizer.encode(f"a {MARKERS[0]}")[len(tokenizer.encode("a")) :]
    return len(tokens) == 1 and tokens[0] != tokenizer.unk_id and MARKERS[0] in tokenizer.decode(tokens)


def with_markers(parts: Parts) -> str | None:
    """The text with a marker for each code; None with more codes than markers, or with such characters in the text.

    >>> with_markers(("Delete ", Code("{n}"), " files?"))
    'Delete ⓵ files?'
    """
    codes = codes_of(parts)
    if len(codes) > len(MARKERS) or any(MARKER.search(part) for part in parts if isinstance(part, str)):
        return None
    markers = iter(MARKERS)
    return "".join(part if isinstance(part, str) else next(markers) for part in parts)


def restore_markers(text: str, codes: Sequence[Code]) -> Parts | None:
    """The parts of a translation with markers; None unless it has every code's marker once, and no other.

    >>> restore_markers("⓵ Dateien löschen?", [Code("{n}")])
    (Code(text='{n}', inline=False), ' Dateien löschen?')
    """
    if Counter(MARKER.findall(text)) != Counter(MARKERS[: len(codes)]):
        return None
    pieces = re.split(f"({MARKER.pattern})", text)
    return join_parts([codes[MARKERS.index(piece)] if i % 2 else piece for i, piece in enumerate(pieces)])


def pair_with_markers(source: Parts, target: Parts) -> tuple[str, str] | None:
    """Both sides with the same markers for the codes they share; codes of one side only are written as text.

    None if they share more codes than there are markers, or if one side contains such a character.

    >>> pair_with_markers((Code("%s"), ": ", Code("%d")), (Code("%d"), " - ", Code("%s")))
    ('⓵: ⓶', '⓶ - ⓵')
    """
    common = Counter(codes_of(source)) & Counter(codes_of(target))
    if common.total() > len(MARKERS) or MARKER.search(plain(source) + plain(target)):
        return None
    markers: dict[Code, list[str]] = defaultdict(list)
    free = iter(MARKERS)
    text = "".join(_marker_for(part, common, markers, free) for part in source)
    return text, "".join(_next_marker(part, markers) for part in target)


def _marker_for(part: str | Code, left: Counter[Code], markers: dict[Code, list[str]], free: Iterator[str]) -> str:
    """The next marker if the code is still in `left`; other parts as text."""
    if isinstance(part, str) or not left[part]:
        return without_inline_codes((part,))
    left[part] -= 1
    markers[part].append(next(free))
    return markers[part][-1]


def _next_marker(part: str | Code, markers: dict[Code, list[str]]) -> str:
    """The next marker of this code; other parts as text."""
    return markers[part].pop(0) if isinstance(part, Code) and markers.get(part) else without_inline_codes((part,))


def restore_copies(text: str, codes: Sequence[Code]) -> Parts | None:
    """The parts of a translation that copied every code; None if one is missing or repeated."""
    wanted = Counter(code.text for code in codes)
    if not wanted or len(wanted) > MAX_COPIED_CODES or any(code.inline for code in codes):
        return None
    pattern = "|".join(re.escape(code) for code in sorted(wanted, key=len, reverse=True))
    pieces = re.split(f"({pattern})", text)
    if Counter(pieces[1::2]) != wanted:
        return None
    return join_parts([Code(piece) if i % 2 else piece for i, piece in enumerate(pieces)])


def place_codes(source: Parts, text: str, links: Collection[Link]) -> Parts:
    """A translation of the text without codes, with each code at the word that its neighbour is aligned to.

    A code that touches only the preceding word goes behind the translation of that word; any other goes before the
    translation of the following word. An unaligned word takes the alignment of the nearest aligned one.

    >>> source = ("a ", Code("<b>"), "black", Code("</b>"), " dog")
    >>> plain(place_codes(source, "un chien noir", [(0, 0), (1, 2), (2, 1)]))
    'un chien <b>noir</b>'
    """
    words = [
        (match.start(), match.end(), match.start() + len(TRAILING.sub("", match[0]))) for match in WORD.finditer(text)
    ]
    linked = _LinkedSpans(links, len(words))
    codes: list[_PlacedCode] = []
    for position, code in _code_positions(source):
        at = _target_position(position, text, words, linked)
        codes.append(_PlacedCode(at, code, position.before.isspace(), position.after.isspace()))
    return _insert_codes(text, codes)


@dataclass(frozen=True)
class _CodePosition:
    """The position of a code in the source text without codes."""

    before: str  # the preceding character
    after: str  # the following character
    n_words_before: int  # words that start before it
    is_first: bool  # only blanks before it
    is_last: bool  # only blanks after it


def _code_positions(source: Parts) -> Iterator[tuple[_CodePosition, Code]]:
    """Every code with its position."""
    text = strings_only(source)
    first, last = len(text) - len(text.lstrip()), len(text.rstrip())
    starts = [match.start() for match in WORD.finditer(text)]
    at = 0
    for part in source:
        if isinstance(part, Code):
            n_words = bisect_left(starts, at)
            yield _CodePosition(text[max(0, at - 1) : at], text[at : at + 1], n_words, at <= first, at >= last), part
        else:
            at += len(part)


class _LinkedSpans:
    """The first and last target word that each source word is aligned to."""

    def __init__(self, links: Collection[Link], n_words: int) -> None:
        self._ends: dict[int, tuple[int, int]] = {}
        for i, j in links:
            if j < n_words:
                first, last = self._ends.get(i, (j, j))
                self._ends[i] = min(first, j), max(last, j)
        self._linked = sorted(self._ends)

    def nearest(self, word: int) -> tuple[int, int] | None:
        """The span of a word, or of the nearest aligned word (the first of two); None without any link."""
        at = bisect_left(self._linked, word)
        near = self._linked[max(0, at - 1) : at + 1]
        return self._ends[min(near, key=lambda i: abs(i - word))] if near else None


@dataclass(frozen=True)
class _PlacedCode:
    """A code, and the index of the target character before which it goes."""

    at: int
    code: Code
    blank_before: bool  # in the source
    blank_after: bool

    @property
    def closes(self) -> bool:
        return self.code.text.startswith(("</", "](", "]["))


def _target_position(
    position: _CodePosition, text: str, words: Sequence[tuple[int, int, int]], linked: _LinkedSpans
) -> int:
    """The index of the target character before which a code goes.

    `words` are those of the target: start, end, and end without trailing punctuation.
    """
    if position.is_first or not words:
        return 0
    if position.is_last:
        return len(text)
    behind_word = not position.before.isspace()
    word = position.n_words_before - behind_word
    ends = linked.nearest(word)
    if ends is None:
        return words[min(word, len(words) - 1)][1 if behind_word else 0]
    if not behind_word:
        return words[ends[0]][0]
    _, end, unpunctuated = words[ends[1]]
    punctuated = position.after.isalnum() or position.after.isspace()  # a comma, if any, precedes the code
    return end if punctuated and not position.before.isalnum() else unpunctuated


def _insert_codes(text: str, codes: Sequence[_PlacedCode]) -> Parts:
    """Insert codes into a text: no closing tag before its opening tag, and blanks around codes as in the source."""
    positions: list[int] = []
    opened = 0  # position of the last opening tag
    for one in codes:
        positions.append(max(one.at, opened) if one.closes else one.at)
        opened = opened if one.closes else one.at
    pieces: list[str | Code] = []
    done = 0
    for at, number in sorted((at, number) for number, at in enumerate(positions)):
        one, left, right = codes[number], text[max(0, at - 1) : at], text[at : at + 1]
        needs_blank = not pieces[-1] if pieces and at == done else left.isalnum()  # beside another code, or a word
        pieces += [text[done:at], " " * (one.blank_before and needs_blank), one.code]
        pieces.append(" " * (one.blank_after and right.isalnum()))
        done = at
    return join_parts([*pieces, text[done:]])


def strings_only(parts: Sequence[str | Code]) -> str:
    """The strings among the parts, concatenated."""
    return "".join(part for part in parts if isinstance(part, str))


def codes_of(parts: Parts) -> list[Code]:
    """The codes among the parts."""
    return [part for part in parts if isinstance(part, Code)]


def without_codes(parts: Parts) -> str:
    """The text without its codes, and with single blanks.

    >>> without_codes(("a ", Code("<b>"), " dog"))
    'a dog'
    """
    return " ".join(strings_only(parts).split())

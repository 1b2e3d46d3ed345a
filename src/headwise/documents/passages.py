"""Monolingual files: a translation replaces its source.

A format module (`json_messages.py`, `subtitles.py`, ...) finds the passages and writes translations in its syntax; all
other bytes stay. Such formats cannot mark machine translation. Bilingual formats have their own modules.
"""

import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from headwise.documents.formats.encodings import decode_file
from headwise.documents.markup.markup import BOMS
from headwise.documents.not_translated import beginning_of
from headwise.documents.unit import Code, Declared, Parts, Skipped, Unit, UnitState, has_letters, is_unchanged
from headwise.errors import UserError

FRONT_MATTER = re.compile(  # of Markdown and HTML, for Jekyll, Hugo and others
    r"(---|\+\+\+)[ \t]*\r?\n(?:.*?\r?\n)??(?:\1|\.\.\.)[ \t]*(?:\r?\n|$)", re.DOTALL
)


class Characters:
    """The text of a file, with its encoding."""

    def __init__(self, path: str, data: bytes, encodings: Sequence[str] = ("utf-8",)) -> None:
        """Decode with the first encoding that fits; a byte order mark takes precedence.

        Raises:
            UserError: none fits; with the line.
        """
        self.path = path
        self._mark, marked = next(((mark, name) for mark, name in BOMS if data.startswith(mark)), (b"", ""))
        body, names, at = data[len(self._mark) :], [marked] if marked else list(encodings), 0
        for self.encoding in names:
            try:
                self.text = decode_file(body, self.encoding)
            except (LookupError, UnicodeDecodeError) as error:
                at = getattr(error, "start", 0)
            else:
                break
        else:
            line = body.count(b"\n", 0, at) + 1
            raise UserError(f"{path}: line {line}: not valid {names[0].upper()}; convert the file to UTF-8")
        if self.text.encode(self.encoding) != body:
            raise UserError(f"{path}: its {self.encoding} bytes cannot be reproduced; convert the file to UTF-8")
        self._ends = [at for at, character in enumerate(self.text) if character == "\n"]

    def skipped(self, kind: str, start: int, end: int) -> Skipped:
        """The characters `start` to `end` as a text that is not translated."""
        return Skipped(kind, self.line(start), beginning_of(self.text[start:end]))

    def line(self, at: int) -> int:
        """The line number of a character, from 1."""
        return bisect_right(self._ends, at - 1) + 1

    def encoded(self, text: str) -> bytes:
        """Encode a text for this file; unencodable characters become character references."""
        return self._mark + text.encode(self.encoding, errors="xmlcharrefreplace")


@dataclass(frozen=True)
class TextPassage:
    """A text to translate: the characters `start` to `end` of a file."""

    start: int
    end: int
    source: Parts
    to_file: Callable[[Parts], str]  # a translation in the syntax of the file
    codes: tuple[tuple[int, int, str], ...] = ()  # its codes with passages inside: start, end and `Code.text`, in order
    key: str = ""  # as `Unit.key`
    markup: str = ""  # as `Unit.markup`


class Passages:
    """A monolingual document. Passages may lie inside codes of others, such as the title of an image in a sentence."""

    source_languages: Sequence[Declared] = ()
    target_languages: Sequence[Declared] = ()

    def __init__(
        self,
        characters: Characters,
        passages: Iterable[TextPassage],
        edits: Iterable[TextPassage] = (),
        skipped: Iterable[Skipped] = (),
    ) -> None:
        """`edits` are made with any translation, such as that of a declared language; they are not units."""
        self._characters = characters
        self._edits, self.skipped = tuple(edits), tuple(skipped)
        self._passages = sorted(passages, key=lambda one: (one.start, -one.end))
        self.units = [
            Unit(one.source, (), _state(one.source), characters.line(one.start), one.markup, one.key)
            for one in self._passages
        ]

    def filled(self, targets: Mapping[int, Parts]) -> bytes:
        """See `unit.Document`."""
        changed = [(self._passages[number], parts) for number, parts in targets.items()]
        changed = [(one, parts) for one, parts in changed if not is_unchanged(one.source, parts)]
        changed += [(edit, edit.source) for edit in self._edits if targets]
        changed.sort(key=lambda one: (one[0].start, -one[0].end))
        return self._characters.encoded(self._between(0, len(self._characters.text), changed))

    def _between(self, start: int, end: int, changed: Sequence[tuple[TextPassage, Parts]]) -> str:
        """A span of the file with the changed passages."""
        text, pieces = self._characters.text, list[str]()
        for number, (passage, parts) in enumerate(changed):
            if start <= passage.start and passage.end <= end:
                inner = _passages_within(passage.start, passage.end, changed, number + 1)
                pieces += [text[start : passage.start], passage.to_file(self._with_inner(passage, parts, inner))]
                start = passage.end
        return "".join([*pieces, text[start:end]])

    def _with_inner(self, passage: TextPassage, parts: Parts, inner: Sequence[tuple[TextPassage, Parts]]) -> Parts:
        """A translation, with changes inside its codes where these contain passages."""
        spans: dict[str, deque[tuple[int, int]]] = {}
        for start, end, text in passage.codes if inner else ():
            spans.setdefault(text, deque()).append((start, end))
        return tuple(self._code(part, spans, inner) if inner and isinstance(part, Code) else part for part in parts)

    def _code(
        self, code: Code, spans: Mapping[str, deque[tuple[int, int]]], inner: Sequence[tuple[TextPassage, Parts]]
    ) -> Code:
        """A code as it must be written: that of the next unused span with this text."""
        if not spans.get(code.text):
            return code
        start, end = spans[code.text].popleft()
        return replace(code, text=self._between(start, end, _passages_within(start, end, inner)))


def _passages_within(
    start: int, end: int, changed: Sequence[tuple[TextPassage, Parts]], first: int = 0
) -> Sequence[tuple[TextPassage, Parts]]:
    """Changed passages that start within a span, from index `first` on; `changed` is sorted."""
    low = bisect_left(changed, start, first, key=lambda one: one[0].start)
    return changed[low : bisect_left(changed, end, low, key=lambda one: one[0].start)]


def _state(source: Parts) -> UnitState:
    """Only texts with letters are translated."""
    return UnitState.UNTRANSLATED if has_letters(source) else UnitState.KEPT

"""Files of one language: passages to translate, and a translation takes the place of its source.

A format (`json_messages.py`, `subtitles.py`, ...) finds its passages and says how each is spelt; other bytes stay. Such
files have no word for what a machine wrote. Not here: formats that keep a translation beside its source.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sightline.errors import UserError
from sightline.localisation.encodings import decoded
from sightline.localisation.markup import MARKS
from sightline.localisation.unit import Code, Parts, Unit, UnitState


class Characters:
    """The text of a file, and how it was written."""

    def __init__(self, path: str, data: bytes, encodings: Sequence[str] = ("utf-8",)) -> None:
        """The first of the encodings that fits, unless the file begins with a mark of its own.

        Raises:
            UserError: none fits; with the line.
        """
        self.path = path
        self._mark, marked = next(((mark, name) for mark, name in MARKS if data.startswith(mark)), (b"", ""))
        body, names, at = data[len(self._mark) :], [marked] if marked else list(encodings), 0
        for self.encoding in names:
            try:
                self.text = decoded(body, self.encoding)
            except (LookupError, UnicodeDecodeError) as error:
                at = getattr(error, "start", 0)
            else:
                break
        else:
            line = body.count(b"\n", 0, at) + 1
            raise UserError(f"{path}: line {line}: is not in {names[0].upper()}; convert it to UTF-8")
        if self.text.encode(self.encoding) != body:
            raise UserError(f"{path}: its {self.encoding} spells the same text in several ways; convert it to UTF-8")
        self._ends = [at for at, character in enumerate(self.text) if character == "\n"]

    def line(self, at: int) -> int:
        """The number of the line that a character is in, from 1."""
        return bisect_right(self._ends, at - 1) + 1

    def encoded(self, text: str) -> bytes:
        """A text as bytes of this file; characters that its encoding has not got are references, as in HTML."""
        return self._mark + text.encode(self.encoding, errors="xmlcharrefreplace")


@dataclass(frozen=True)
class TextPassage:
    """A text to translate, from the character `start` of a file to `end`."""

    start: int
    end: int
    source: Parts
    spelt: Callable[[Parts], str]  # a translation as characters of the file
    codes: tuple[tuple[int, int], ...] = ()  # where its inline codes stand, in their order
    key: str = ""  # as `Unit.key`
    markup: str = ""  # as `Unit.markup`


class Passages:
    """A document of one language. Passages may lie in the codes of others, as a picture's title in a sentence."""

    def __init__(self, characters: Characters, passages: Iterable[TextPassage]) -> None:
        self._characters = characters
        self._passages = sorted(passages, key=lambda one: (one.start, -one.end))
        self.units = [
            Unit(one.source, (), _state(one.source), characters.line(one.start), one.markup, one.key)
            for one in self._passages
        ]

    def filled(self, targets: Mapping[int, Parts]) -> bytes:
        """See `unit.Document`."""
        changed = [(self._passages[number], parts) for number, parts in sorted(targets.items())]
        return self._characters.encoded(self._between(0, len(self._characters.text), changed))

    def _between(self, start: int, end: int, changed: Sequence[tuple[TextPassage, Parts]]) -> str:
        """A stretch of the file with what has changed in it."""
        text, pieces = self._characters.text, list[str]()
        for number, (passage, parts) in enumerate(changed):
            if start <= passage.start and passage.end <= end:
                inner = _starting_in(passage.start, passage.end, changed, number + 1)
                pieces += [text[start : passage.start], passage.spelt(self._with_inner(passage, parts, inner))]
                start = passage.end
        return "".join([*pieces, text[start:end]])

    def _with_inner(self, passage: TextPassage, parts: Parts, inner: Sequence[tuple[TextPassage, Parts]]) -> Parts:
        """A translation whose codes have changed, too, where they hold passages."""
        spans: dict[str, deque[tuple[int, int]]] = {}
        for span in passage.codes if inner else ():
            spans.setdefault(self._characters.text[slice(*span)], deque()).append(span)
        return tuple(self._code(part, spans, inner) if inner and isinstance(part, Code) else part for part in parts)

    def _code(
        self, code: Code, spans: Mapping[str, deque[tuple[int, int]]], inner: Sequence[tuple[TextPassage, Parts]]
    ) -> Code:
        """A code as it is to be written: that of the first span not yet taken that reads so."""
        if not spans.get(code.text):
            return code
        start, end = spans[code.text].popleft()
        return Code(self._between(start, end, _starting_in(start, end, inner)), code.inline)


def _starting_in(
    start: int, end: int, changed: Sequence[tuple[TextPassage, Parts]], first: int = 0
) -> Sequence[tuple[TextPassage, Parts]]:
    """Those from number `first` on that begin in a stretch; they are in the order of their places."""
    low = bisect_left(changed, start, first, key=lambda one: one[0].start)
    return changed[low : bisect_left(changed, end, low, key=lambda one: one[0].start)]


def _state(source: Parts) -> UnitState:
    """Only what has letters is a text."""
    has_letters = any(character.isalpha() for part in source if isinstance(part, str) for character in part)
    return UnitState.UNTRANSLATED if has_letters else UnitState.KEPT

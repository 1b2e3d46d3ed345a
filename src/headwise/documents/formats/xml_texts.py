"""Monolingual XML files: a translation replaces the content of an element, or is added in a new element.

See `android.py`, `apple_strings.py` and `resx.py` for the elements that are texts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from headwise.documents.markup.markup import Element, Source
from headwise.documents.not_translated import NO_LETTERS
from headwise.documents.unit import Declared, Parts, Skipped, Unit, UnitState, has_letters, is_unchanged


@dataclass(frozen=True)
class ElementText:
    """A text to translate, and the bytes that its translation replaces."""

    start: int
    end: int
    line: int
    source: Parts
    to_file: Callable[[Parts], str]  # a translation in the syntax of the file
    key: str = ""  # as `Unit.key`
    kept: str = ""  # as `Unit.kept`; not for translation
    markup: str = ""  # as `Unit.markup`

    @classmethod
    def of(
        cls, element: Element, source: Parts, to_file: Callable[[Parts], str], key: str, kept: str, markup: str = ""
    ) -> "ElementText":
        """The content of an element."""
        return cls(element.inner, element.inner_end, element.line, source, to_file, key, kept, markup)


class XmlTexts:
    """A monolingual XML document."""

    source_languages: Sequence[Declared] = ()
    target_languages: Sequence[Declared] = ()

    def __init__(self, source: Source, texts: Iterable[ElementText], skipped: Iterable[Skipped] = ()) -> None:
        self._source, self._texts, self.skipped = source, list(texts), tuple(skipped)
        self.units = [_unit(text) for text in self._texts]

    def filled(self, targets: Mapping[int, Parts]) -> bytes:
        """See `unit.Document`."""
        texts = [(self._texts[number], parts) for number, parts in sorted(targets.items())]
        changed = [(t, parts) for t, parts in texts if t.start == t.end or not is_unchanged(t.source, parts)]
        return self._source.edited((text.start, text.end, text.to_file(parts)) for text, parts in changed)


def _unit(text: ElementText) -> Unit:
    kept = text.kept or ("" if has_letters(text.source) else NO_LETTERS)
    state = UnitState.KEPT if kept else UnitState.UNTRANSLATED
    return Unit(text.source, (), state, text.line, text.markup, text.key, kept=kept)

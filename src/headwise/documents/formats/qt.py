"""Qt Linguist (`.ts`): https://doc.qt.io/qt-6/linguist-ts-file-format.html.

A unit is a message with `type="unfinished"` and an empty translation; a message with `numerus="yes"` has a unit for
each form. Translations stay unfinished, so that programs do not use them before review.
Obsolete and vanished messages stay.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headwise.documents.formats.plurals import plural_categories
from headwise.documents.markup.markup import Element, Source, to_xml, with_attributes
from headwise.documents.unit import Declared, Parts, Skipped, Unit, UnitState, has_letters
from headwise.errors import UserError

OLD = ("obsolete", "vanished")


@dataclass(frozen=True)
class Place:
    """The position of the translation of a unit."""

    message: Element
    form: int = -1  # numerus form; -1 for a message without


class LinguistFile:
    """A file of Qt Linguist."""

    def __init__(self, source: Source, languages: Sequence[str]) -> None:
        self._source = source
        self._declared = source.root.attributes.get("language", "")
        self._wanted = languages[1]
        self.source_languages, self.target_languages = (
            [Declared(code, source.root.line)] if code else []
            for code in (source.root.attributes.get("sourcelanguage", ""), self._declared)
        )
        self._places: list[Place] = []
        self.units: list[Unit] = []
        self.skipped: list[Skipped] = []
        for message in source.root.every("message"):
            self._add(message)

    def _add(self, message: Element) -> None:
        text, translation = message.child("source"), message.child("translation")
        kind = translation.attributes.get("type", "") if translation else ""
        source = self._parts(text) if text else ()
        if kind in OLD or not source:
            self.skipped.append(Skipped(f"{kind} message" if kind in OLD else "message without a source", message.line))
            return
        if message.attributes.get("numerus") != "yes":
            target = self._parts(translation) if translation else ()
            self._unit(Place(message), source, target, kind)
            return
        forms = _forms(translation)
        for number in range(len(forms) or self._number_of_forms()):
            target = self._parts(forms[number]) if forms else ()
            self._unit(Place(message, number), source, target, kind)

    def _parts(self, element: Element) -> Parts:
        """The text; bytes (`<byte value="x9"/>`) are codes, and a variant of a length is the first."""
        variant = element.child("lengthvariant")
        return self._source.parts(variant or element, lambda child: False)

    def _number_of_forms(self) -> int:
        """As Qt counts them: without the category of fractions and millions."""
        names = plural_categories(self._declared or self._wanted) or ["one", "other"]
        fractions = names in (["one", "many", "other"], ["one", "few", "many", "other"])
        return len(names) - fractions

    def _unit(self, place: Place, source: Parts, target: Parts, kind: str) -> None:
        state = UnitState.TRANSLATED if target else UnitState.UNTRANSLATED
        state = UnitState.FUZZY if target and kind == "unfinished" else state
        state = state if has_letters(source) else UnitState.KEPT
        self._places.append(place)
        self.units.append(Unit(source, target, state, place.message.line, markup="qt"))

    def filled(self, targets: Mapping[int, Parts]) -> bytes:
        """See `unit.Document`."""
        changed: dict[Element, dict[int, Parts]] = {}
        for number, parts in sorted(targets.items()):
            place = self._places[number]
            changed.setdefault(place.message, {})[place.form] = parts
        edits = [self._edit(message, texts) for message, texts in changed.items()]
        if targets and self._wanted and not self._declared:
            root = self._source.root
            tag = with_attributes(self._source.text(root.start, root.inner), language=self._wanted)
            edits.append((root.start, root.inner, tag))
        return self._source.edited(edits)

    def _edit(self, message: Element, texts: Mapping[int, Parts]) -> tuple[int, int, str]:
        """The translation of a message, unfinished."""
        old = message.child("translation")
        opening = self._source.text(old.start, old.inner) if old else "<translation>"
        opening = opening[:-2].rstrip() + ">" if opening.endswith("/>") else opening
        opening = with_attributes(opening, type="unfinished")
        content = to_xml(texts[-1]) if -1 in texts else self._numerus(message, texts)
        if old:
            return old.start, old.end, f"{opening}{content}</translation>"
        last = message.children[-1]
        return last.end, last.end, f"{self._source.indentation(last)}{opening}{content}</translation>"

    def _numerus(self, message: Element, texts: Mapping[int, Parts]) -> str:
        """All forms, with the new ones."""
        forms = _forms(message.child("translation"))
        indented = self._source.indentation(message.children[-1])
        inner = self._source.indentation(forms[0]) if forms else indented + "    " * bool(indented)
        written = []
        for number in range(max(len(forms), max(texts) + 1)):
            if number in texts:
                written.append(f"<numerusform>{to_xml(texts[number])}</numerusform>")
            elif number < len(forms):
                written.append(self._source.text(forms[number].start, forms[number].end))
            else:
                written.append("<numerusform></numerusform>")
        return "".join(inner + form for form in written) + indented


def _forms(translation: Element | None) -> list[Element]:
    return [child for child in translation.children if child.name == "numerusform"] if translation else []


def read_qt(path: str, data: bytes, languages: Sequence[str]) -> LinguistFile:
    """Read a file of Qt Linguist; the target language is that of the file, or of `languages`."""
    if not re.match(rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml|<!DOCTYPE TS|<TS[\s>])", data):
        raise UserError(f"{path}: not a file of Qt Linguist; move texts of a TypeScript module to JSON")
    source = Source(path, data)
    source.check_root("TS", "a file of Qt Linguist")
    return LinguistFile(source, languages)

"""Translation Memory eXchange (.tmx): https://www.gala-global.org/tmx-14b.

A `tu` is a unit: its `tuv` of the source language, and that of the target language if there is one. A file may hold
more than two languages; which two are meant has to be said then. A translation gets the attribute `creationid="MT!"`,
by which the tools that read such memories tell what a machine wrote.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sightline.errors import UserError
from sightline.localisation.markup import Element, Source, same_language, with_attributes, written
from sightline.localisation.unit import Parts, Unit, UnitState

WHOLE = ("bpt", "ept", "it", "ph", "ut")  # hold code of the document they come from


@dataclass(frozen=True)
class Variants:
    """The elements of a unit."""

    source: Element
    target: Element | None
    last: Element  # of its `tuv`s


class TranslationMemory:
    """A document of translation units."""

    def __init__(self, source: Source, languages: tuple[str, str]) -> None:
        self._source, self.languages = source, languages
        self._places: list[Variants] = []
        self.units: list[Unit] = []
        for tu in source.root.every("tu"):
            self._add(tu)

    def _add(self, tu: Element) -> None:
        variants = [child for child in tu.children if child.name == "tuv"]
        ours = [next((v for v in variants if same_language(language(v), code)), None) for code in self.languages]
        if ours[0] is None:
            return
        source, target = self._text(ours[0]), self._text(ours[1]) if ours[1] else ()
        state = UnitState.KEPT if not source else UnitState.TRANSLATED if target else UnitState.UNTRANSLATED
        self._places.append(Variants(ours[0], ours[1], variants[-1]))
        self.units.append(Unit(source, target, state, tu.line))

    def _text(self, tuv: Element) -> Parts:
        segment = tuv.child("seg")
        if segment is None:
            return ()
        parts = self._source.parts(segment, lambda e: e.name not in WHOLE and e.inner_end > e.inner)
        return stripped(parts)

    def filled(self, targets: Mapping[int, Parts]) -> bytes:
        """See `unit.Document`."""
        return self._source.edited(edit for number, parts in targets.items() for edit in self._edits(number, parts))

    def _edits(self, number: int, parts: Parts) -> Iterator[tuple[int, int, str]]:
        place, content = self._places[number], f"<seg>{written(parts)}</seg>"
        if place.target is None:
            indented = self._source.indentation(place.last)
            tuv = f'<tuv xml:lang="{self.languages[1]}" creationid="MT!">{content}</tuv>'
            yield place.last.end, place.last.end, indented + tuv
            return
        tag = self._source.text(place.target.start, place.target.inner)
        yield place.target.start, place.target.inner, with_attributes(tag.replace("/>", ">"), creationid="MT!")
        segment = place.target.child("seg")
        if segment is not None:
            yield segment.start, segment.end, content
        else:
            at = place.target.inner_end
            closing = "</tuv>" if place.target.inner == place.target.end else ""
            yield at, at, content + closing


def stripped(parts: Parts) -> Parts:
    """Parts without the blanks around them; nothing where there is nothing to read."""
    if not any(part.strip() for part in parts if isinstance(part, str)):
        return ()
    found = list(parts)
    if isinstance(found[0], str):
        found[0] = found[0].lstrip()
    if isinstance(found[-1], str):
        found[-1] = found[-1].rstrip()
    return tuple(part for part in found if part != "")


def language(tuv: Element) -> str:
    """Its code; older files have it without a namespace."""
    return tuv.attributes.get("xml:lang") or tuv.attributes.get("lang", "")


def read_tmx(path: str, data: bytes, languages: Sequence[str]) -> TranslationMemory:
    """A memory; where `languages` are not given, the header's source and the one other that occurs.

    Raises:
        UserError: it is no TMX file, or has not these languages.
    """
    source = Source(path, data)
    if source.root.name != "tmx":
        raise UserError(f"{path}: line {source.root.line}: is no TMX file, it begins with <{source.root.name}>")
    codes = list(dict.fromkeys(language(tuv) for tuv in source.root.every("tuv")))
    header = source.root.child("header")
    there = ", ".join(codes) or "none"
    for wanted in filter(None, languages):
        if not any(same_language(code, wanted) for code in codes) and wanted == languages[0]:
            raise UserError(f"{path}: has no text in '{wanted}'; its languages are: {there}")
    src = languages[0] or (header.attributes.get("srclang", "") if header else "")
    src = src if any(same_language(code, src) for code in codes) else ""
    others = [code for code in codes if not src or not same_language(code, src)]
    tgt = languages[1] or (others[0] if src and len(others) == 1 else "")
    if not (src and tgt):
        raise UserError(f"{path}: which languages? It has {there}; add --languages FROM-TO")
    return TranslationMemory(source, (src, tgt))

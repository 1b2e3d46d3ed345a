"""XLIFF 1.2 and 2.0 (.xlf, .xliff): http://docs.oasis-open.org/xliff/v1.2/os/xliff-core.html, .../xliff-core/v2.0.

A unit is a `trans-unit` (1.2) or a `segment` (2.0). Translations are marked for review: with
`state="needs-review-translation" state-qualifier="mt-suggestion"` in 1.2, and `state="translated"` with a `subState` of
this program in 2.0, which has no standard value. Units with `translate="no"` stay.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headwise.errors import UserError
from headwise.localisation.markup import Element, Source, same_language, to_xml, with_attributes
from headwise.localisation.unit import Parts, Skipped, Unit, UnitState

PAIRED = ("g", "mrk", "pc")  # elements whose content is text
TO_REVIEW = ("needs-review", "needs-l10n", "needs-adaptation")
TO_DO = ("new", "needs-translation", "initial")
SUB_STATE = "headwise:machine"
FORMER_SUB_STATE = "sightline:machine"  # in files that were filled under the former name of this package


@dataclass(frozen=True)
class SegmentElements:
    """The elements of a unit."""

    segment: Element  # `trans-unit` or `segment`
    source: Element
    target: Element | None


class Exchange:
    """An XLIFF document of either version."""

    def __init__(self, source: Source, languages: Sequence[str]) -> None:
        self._source = source
        self._new = source.root.attributes.get("version", "1.2").startswith("2")
        self._places: list[SegmentElements] = []
        self.units: list[Unit] = []
        self.skipped: list[Skipped] = []
        self._named = dict(self._languages(languages[1]))
        for unit, kept in _with_translate(source.root, kept=False):
            self._add(unit, kept)

    def _languages(self, wanted: str) -> Iterator[tuple[Element, str]]:
        """The elements that lack a target language, with its code."""
        name = "trgLang" if self._new else "target-language"
        for element in [self._source.root] if self._new else self._source.root.every("file"):
            declared = element.attributes.get(name, "")
            if declared and wanted and not same_language(declared, wanted):
                where = f"{self._source.path}: line {element.line}"
                raise UserError(f"{where}: its target language is '{declared}', not '{wanted}'; remove --languages")
            if wanted and not declared:
                yield element, wanted

    def _add(self, segment: Element, kept: bool) -> None:
        source, target = segment.child("source"), segment.child("target")
        if source is None:
            self.skipped.append(Skipped("unit without a source", segment.line))
            return
        texts = [self._source.parts(e, lambda e: e.name in PAIRED) if e else () for e in (source, target)]
        state = _state(segment, target, bool(texts[1]))
        if kept or not any(part.strip() for part in texts[0] if isinstance(part, str)):
            state = UnitState.KEPT
        self._places.append(SegmentElements(segment, source, target))
        self.units.append(Unit(texts[0], texts[1], state, segment.line, kept='translate="no"' if kept else ""))

    def filled(self, targets: Mapping[int, Parts]) -> bytes:
        """See `unit.Document`."""
        edits = [edit for number, parts in targets.items() for edit in self._edits(self._places[number], parts)]
        name = "trgLang" if self._new else "target-language"
        for element, code in self._named.items() if targets else ():
            tag = self._source.text(element.start, element.inner)
            edits.append((element.start, element.inner, with_attributes(tag, **{name: code})))
        return self._source.edited(edits)

    def _edits(self, place: SegmentElements, parts: Parts) -> Iterator[tuple[int, int, str]]:
        if self._new:
            tag = self._source.text(place.segment.start, place.segment.inner)
            marked = with_attributes(tag, state="translated", subState=SUB_STATE)
            yield place.segment.start, place.segment.inner, marked
        state = {} if self._new else {"state": "needs-review-translation", "state-qualifier": "mt-suggestion"}
        if place.target is not None:
            tag = self._source.text(place.target.start, place.target.inner).replace("/>", ">")
            yield place.target.start, place.target.end, f"{with_attributes(tag, **state)}{to_xml(parts)}{self._closing}"
            return
        prefix = self._source.prefix
        behind = place.segment.child("seg-source") or place.source
        element = f"{with_attributes(f'<{prefix}target>', **state)}{to_xml(parts)}{self._closing}"
        yield behind.end, behind.end, self._source.indentation(place.source) + element

    @property
    def _closing(self) -> str:
        return f"</{self._source.prefix}target>"


def _with_translate(element: Element, kept: bool) -> Iterator[tuple[Element, bool]]:
    """Every unit, and whether `translate="no"` applies to it."""
    for child in element.children:
        translate = child.attributes.get("translate", "")
        below = translate == "no" if translate else kept
        if child.name in ("trans-unit", "segment"):
            yield child, below
        elif child.name not in ("alt-trans", "header", "skeleton"):
            yield from _with_translate(child, below)


def _state(segment: Element, target: Element | None, filled: bool) -> UnitState:
    state = target.attributes.get("state", "") if target else ""
    state = state or segment.attributes.get("state", "")
    if not filled or (state in TO_DO and segment.attributes.get("approved") != "yes"):
        return UnitState.UNTRANSLATED
    machine = segment.attributes.get("subState") in (SUB_STATE, FORMER_SUB_STATE)
    return UnitState.FUZZY if machine or state.startswith(TO_REVIEW) else UnitState.TRANSLATED


def read_xliff(path: str, data: bytes, languages: Sequence[str]) -> Exchange:
    """Read an XLIFF document; the target language is required if the file does not declare it."""
    source = Source(path, data)
    if source.root.name != "xliff":
        raise UserError(f"{path}: line {source.root.line}: not an XLIFF file: the root element is <{source.root.name}>")
    return Exchange(source, languages)

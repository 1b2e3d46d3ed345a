"""XLIFF 1.2 and 2.0 (.xlf, .xliff): http://docs.oasis-open.org/xliff/v1.2/os/xliff-core.html, .../xliff-core/v2.0.

A unit is a `trans-unit` (1.2) or a `segment` (2.0). Its translation is marked as somebody's to review:
`state="needs-review-translation" state-qualifier="mt-suggestion"` in 1.2; `state="translated"` with a `subState` of
ours in 2.0, which has no word for it. What says `translate="no"` is left alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sightline.errors import UserError
from sightline.localisation.markup import Element, Source, same_language, with_attributes, written
from sightline.localisation.unit import Parts, Unit, UnitState

PAIRED = ("g", "mrk", "pc")  # their content is text
TO_REVIEW = ("needs-review", "needs-l10n", "needs-adaptation")
TO_DO = ("new", "needs-translation", "initial")
SUB_STATE = "sightline:machine"


@dataclass(frozen=True)
class SegmentElements:
    """The elements of a unit."""

    segment: Element  # `trans-unit` or `segment`
    source: Element
    target: Element | None


class Exchange:
    """A document of either version."""

    def __init__(self, source: Source, languages: Sequence[str]) -> None:
        self._source = source
        self._new = source.root.attributes.get("version", "1.2").startswith("2")
        self._places: list[SegmentElements] = []
        self.units: list[Unit] = []
        self._named = dict(self._languages(languages[1]))
        for unit, kept in _with_translate(source.root, kept=False):
            self._add(unit, kept)

    def _languages(self, wanted: str) -> Iterator[tuple[Element, str]]:
        """The elements that name the target language, where they do not, with its code."""
        name = "trgLang" if self._new else "target-language"
        for element in [self._source.root] if self._new else self._source.root.every("file"):
            said = element.attributes.get(name, "")
            if said and wanted and not same_language(said, wanted):
                where = f"{self._source.path}: line {element.line}"
                raise UserError(f"{where}: is for '{said}', not for '{wanted}'; leave out --languages")
            if wanted and not said:
                yield element, wanted

    def _add(self, segment: Element, kept: bool) -> None:
        source, target = segment.child("source"), segment.child("target")
        if source is None:
            return
        texts = [self._source.parts(e, lambda e: e.name in PAIRED) if e else () for e in (source, target)]
        state = _state(segment, target, bool(texts[1]))
        if kept or not any(part.strip() for part in texts[0] if isinstance(part, str)):
            state = UnitState.KEPT
        self._places.append(SegmentElements(segment, source, target))
        self.units.append(Unit(texts[0], texts[1], state, segment.line))

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
        said = {} if self._new else {"state": "needs-review-translation", "state-qualifier": "mt-suggestion"}
        if place.target is not None:
            tag = self._source.text(place.target.start, place.target.inner).replace("/>", ">")
            yield place.target.start, place.target.end, f"{with_attributes(tag, **said)}{written(parts)}{self._closing}"
            return
        prefix = self._source.prefix
        behind = place.segment.child("seg-source") or place.source
        element = f"{with_attributes(f'<{prefix}target>', **said)}{written(parts)}{self._closing}"
        yield behind.end, behind.end, self._source.indentation(place.source) + element

    @property
    def _closing(self) -> str:
        return f"</{self._source.prefix}target>"


def _with_translate(element: Element, kept: bool) -> Iterator[tuple[Element, bool]]:
    """Every unit, and whether it or what it is in says that it is not for translation."""
    for child in element.children:
        said = child.attributes.get("translate", "")
        below = said == "no" if said else kept
        if child.name in ("trans-unit", "segment"):
            yield child, below
        elif child.name not in ("alt-trans", "header", "skeleton"):
            yield from _with_translate(child, below)


def _state(segment: Element, target: Element | None, filled: bool) -> UnitState:
    said = target.attributes.get("state", "") if target else ""
    said = said or segment.attributes.get("state", "")
    if not filled or (said in TO_DO and segment.attributes.get("approved") != "yes"):
        return UnitState.UNTRANSLATED
    machine = segment.attributes.get("subState") == SUB_STATE
    return UnitState.FUZZY if machine or said.startswith(TO_REVIEW) else UnitState.TRANSLATED


def read_xliff(path: str, data: bytes, languages: Sequence[str]) -> Exchange:
    """A document of XLIFF; the target language has to be given where the file leaves it open and is to be filled.

    Raises:
        UserError: it is no XLIFF file, or for another language.
    """
    source = Source(path, data)
    if source.root.name != "xliff":
        raise UserError(f"{path}: line {source.root.line}: is no XLIFF file, it begins with <{source.root.name}>")
    return Exchange(source, languages)

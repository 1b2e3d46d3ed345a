"""XLIFF 1.2 and 2.x (.xlf, .xliff), and its variants of Trados (.sdlxliff) and memoQ (.mqxliff).

http://docs.oasis-open.org/xliff/v1.2/os/xliff-core.html, .../xliff-core/v2.0. A unit is a `trans-unit` (1.2), each
`<mrk mtype="seg">` of its `seg-source`, or a `segment` (2.x). Translations are marked for review: in 1.2 with
`state="needs-review-translation" state-qualifier="mt-suggestion"`, in 2.x, which has no standard value, with
`state="translated"` and a `subState` of this program, by Trados' `conf="Draft" origin="mt"` of the `sdl:seg`, and by
memoQ's `mq:status="MachineTranslated"`. Units with `translate="no"`, locked units, protected text and suggestions
(`alt-trans`) stay. `maxwidth` is a limit in characters; sizes in other units are not checked.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from headwise.documents.markup.markup import Element, Source, to_xml, with_attributes
from headwise.documents.unit import Declared, Parts, Skipped, Unit, UnitState
from headwise.errors import UserError

PAIRED = ("g", "mrk", "pc")  # elements whose content is text
MACHINE = {"state": "needs-review-translation", "state-qualifier": "mt-suggestion"}
TO_REVIEW = ("needs-review", "needs-l10n", "needs-adaptation")
TO_DO = ("new", "needs-translation", "initial")
SUB_STATE = "headwise:machine"


@dataclass(frozen=True)
class SegmentElements:
    """The elements of a unit."""

    segment: Element  # `trans-unit` or `segment`
    source: Element
    target: Element | None  # where the translation is
    mark: str = ""  # `mid` of a segment of a `trans-unit`
    whole: Element | None = None  # the `target` of a `trans-unit` with segments


class Exchange:
    """An XLIFF document of either version."""

    def __init__(self, source: Source, languages: Sequence[str]) -> None:
        self._source = source
        self._new = source.root.attributes.get("version", "1.2").startswith("2")
        self._places: list[SegmentElements] = []
        self.units: list[Unit] = []
        self.skipped: list[Skipped] = []
        self._statuses: list[Element | None] = []
        names = ("srcLang", "trgLang") if self._new else ("source-language", "target-language")
        declaring = [source.root] if self._new else list(source.root.every("file"))
        self.source_languages, self.target_languages = (
            [Declared(element.attributes[name], element.line) for element in declaring if element.attributes.get(name)]
            for name in names
        )
        self._lacking = [e for e in declaring if languages[1] and not e.attributes.get(names[1])]
        self._target = {names[1]: languages[1]}
        for unit, kept in _with_translate(source.root, kept=False):
            self._add(unit, kept)

    def _add(self, segment: Element, kept: bool) -> None:
        source, target = segment.child("source"), segment.child("target")
        if source is None:
            self.skipped.append(Skipped("unit without a source", segment.line))
            return
        for element, declared in ((source, self.source_languages), (target, self.target_languages)):
            if element and (code := element.attributes.get("xml:lang")):
                declared.append(Declared(code, element.line))
        sdl = {one.attributes.get("id", ""): one for one in segment.every("seg")}
        for place in _segments(segment, source, target):
            self._add_segment(place, sdl.get(place.mark), 'translate="no"' if kept else "")

    def _add_segment(self, place: SegmentElements, sdl: Element | None, kept: str) -> None:
        """Add a unit; `sdl` has its status in files of Trados."""
        texts = [self._source.parts(e, _is_paired) if e else () for e in (place.source, place.target)]
        state = _state(place.segment, place.whole or place.target, bool(texts[1]))
        if sdl is not None and sdl.attributes.get("conf") == "Draft" and texts[1]:
            state = UnitState.FUZZY
        locked = sdl is not None and sdl.attributes.get("locked") == "true"
        if locked or place.segment.attributes.get("mq:locked") == "locked":
            kept = kept or "locked"
        if kept or not any(part.strip() for part in texts[0] if isinstance(part, str)):
            state = UnitState.KEPT
        self._places.append(place)
        self._statuses.append(sdl)
        limit = _max_length(place.segment)
        self.units.append(Unit(texts[0], texts[1], state, place.source.line, max_length=limit, kept=kept))

    def filled(self, targets: Mapping[int, Parts]) -> bytes:
        """See `unit.Document`."""
        edits = [
            edit
            for number, parts in targets.items()
            if not self._places[number].mark
            for edit in self._edits(self._places[number], parts)
        ]
        edits += self._segment_edits({n: parts for n, parts in targets.items() if self._places[n].mark})
        for element in self._lacking if targets else ():
            tag = self._source.text(element.start, element.inner)
            edits.append((element.start, element.inner, with_attributes(tag, **self._target)))
        return self._source.edited(edits)

    def _edits(self, place: SegmentElements, parts: Parts) -> Iterator[tuple[int, int, str]]:
        if self._new:
            tag = self._source.text(place.segment.start, place.segment.inner)
            marked = with_attributes(tag, state="translated", subState=SUB_STATE)
            yield place.segment.start, place.segment.inner, marked
        state = {} if self._new else MACHINE
        yield from self._status_edits(place.segment)
        if place.target is not None:
            tag = self._source.text(place.target.start, place.target.inner).replace("/>", ">")
            yield place.target.start, place.target.end, f"{with_attributes(tag, **state)}{to_xml(parts)}{self._closing}"
            return
        prefix = self._source.prefix
        behind = place.segment.child("seg-source") or place.source
        element = f"{with_attributes(f'<{prefix}target>', **state)}{to_xml(parts)}{self._closing}"
        yield behind.end, behind.end, self._source.indentation(place.source) + element

    def _status_edits(self, segment: Element) -> Iterator[tuple[int, int, str]]:
        """The status of memoQ."""
        if "mq:status" in segment.attributes:
            tag = self._source.text(segment.start, segment.inner)
            yield segment.start, segment.inner, with_attributes(tag, **{"mq:status": "MachineTranslated"})

    def _segment_edits(self, targets: Mapping[int, Parts]) -> Iterator[tuple[int, int, str]]:
        """Translations of segments, joined for each `trans-unit`."""
        for segment, group in groupby(sorted(targets), lambda number: self._places[number].segment):
            numbers = list(group)
            texts = {self._places[number].mark: (self._places[number], targets[number]) for number in numbers}
            yield from self._status_edits(segment)
            for status in filter(None, (self._statuses[number] for number in numbers)):
                tag = self._source.text(status.start, status.inner)
                yield status.start, status.inner, with_attributes(tag, conf="Draft", origin="mt")
            first = next(iter(texts.values()))[0]
            if all(place.target is not None for place, _ in texts.values()):
                for place, parts in texts.values():
                    yield self._filled_mark(place.target, parts)
                yield from self._marked_target(first.whole)
            else:
                yield self._new_target(segment, first.whole, texts)

    def _filled_mark(self, mark: Element | None, parts: Parts) -> tuple[int, int, str]:
        assert mark is not None
        tag = self._source.text(mark.start, mark.inner)
        opening = f"{tag[:-2].rstrip()}>" if tag.endswith("/>") else tag
        return mark.start, mark.end, f"{opening}{to_xml(parts)}</{self._source.prefix}mrk>"

    def _marked_target(self, target: Element | None) -> Iterator[tuple[int, int, str]]:
        """The mark of a machine translation, which is elsewhere in files of Trados."""
        if target is not None and "sdl" not in self._variant:
            tag = self._source.text(target.start, target.inner)
            yield target.start, target.inner, with_attributes(tag, **MACHINE)

    def _new_target(
        self, segment: Element, target: Element | None, texts: Mapping[str, tuple[SegmentElements, Parts]]
    ) -> tuple[int, int, str]:
        """A `target` like the `seg-source`, with its segments replaced; those without a translation are empty."""
        behind = segment.child("seg-source")
        assert behind is not None
        there = {one.attributes.get("mid", ""): one for one in (target.every("mrk") if target else ())}
        pieces, at = list[str](), behind.inner
        for mark in _marks(behind):
            mid = mark.attributes["mid"]
            pieces.append(self._source.text(at, mark.inner))
            if mid in texts:
                pieces.append(to_xml(texts[mid][1]))
            elif mid in there:
                pieces.append(self._source.text(there[mid].inner, there[mid].inner_end))
            at = mark.inner_end
        pieces.append(self._source.text(at, behind.inner_end))
        state = {} if "sdl" in self._variant else MACHINE
        if target is None:
            tag = f"<{self._source.prefix}target>"
            before, span = self._source.indentation(behind), (behind.end, behind.end)
        else:
            tag = self._source.text(target.start, target.inner).replace("/>", ">")
            before, span = "", (target.start, target.end)
        return *span, f"{before}{with_attributes(tag, **state)}{''.join(pieces)}{self._closing}"

    @cached_property
    def _variant(self) -> str:
        """The names of the namespaces of the root element."""
        return " ".join(self._source.root.attributes)

    @property
    def _closing(self) -> str:
        return f"</{self._source.prefix}target>"


def _segments(segment: Element, source: Element, target: Element | None) -> Iterator[SegmentElements]:
    """The segments of a unit: the unit itself, or the marks of its `seg-source`, unless its target has none."""
    divided = segment.child("seg-source")
    marks = list(_marks(divided)) if divided else []
    there = {one.attributes.get("mid"): one for one in (_marks(target) if target else ())}
    written = target is not None and target.inner_end > target.inner
    if not marks or (written and not there):
        yield SegmentElements(segment, source, target)
        return
    for mark in marks:
        yield SegmentElements(segment, mark, there.get(mark.attributes["mid"]), mark.attributes["mid"], target)


def _marks(element: Element) -> Iterator[Element]:
    """The segments in an element, which are not nested."""
    for child in element.children:
        if child.name == "mrk" and child.attributes.get("mtype") == "seg" and child.attributes.get("mid"):
            yield child
        else:
            yield from _marks(child)


def _is_paired(element: Element) -> bool:
    """Whether the content of an element is text to translate."""
    is_protected = element.attributes.get("mtype") == "protected" or element.attributes.get("translate") == "no"
    return element.name in PAIRED and not is_protected and element.inner_end > element.inner


def _max_length(segment: Element) -> int:
    """The characters that a translation may have; 0 if unlimited."""
    width = segment.attributes.get("maxwidth", "")
    return int(width) if segment.attributes.get("size-unit") == "char" and re.fullmatch(r"\d{1,9}", width) else 0


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
    machine = segment.attributes.get("subState") == SUB_STATE
    return UnitState.FUZZY if machine or state.startswith(TO_REVIEW) else UnitState.TRANSLATED


def read_xliff(path: str, data: bytes, languages: Sequence[str]) -> Exchange:
    """Read an XLIFF document; the target language is required if the file does not declare it."""
    source = Source(path, data)
    if source.root.name != "xliff":
        raise UserError(f"{path}: line {source.root.line}: not an XLIFF file: the root element is <{source.root.name}>")
    return Exchange(source, languages)

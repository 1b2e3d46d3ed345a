"""Writing direction in PowerPoint presentations (ECMA-376, part 1, 21.1.2.2.7): paragraphs, runs and tables.

A paragraph inherits `rtl` and `algn` from its shape, the placeholder of the layout and that of the master slide, and
the styles of the master or, outside of placeholders, of the presentation. `algn` does not depend on `rtl`, so that a
paragraph that gets another direction gets the opposite alignment.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from posixpath import basename, dirname, join, normpath

from headwise.documents.markup.direction import direction_of, east_asian_locale
from headwise.documents.markup.markup import Element, Source, with_attributes

PRESENTATION = "ppt/presentation.xml"
RELATIONS = re.compile(r"ppt/(?:slides|slideLayouts)/_rels/\w+\.xml\.rels")
MIRRORED = {"l": "r", "r": "l"}
DEFAULTS = {"algn": "l", "rtl": "0"}


@dataclass(frozen=True)
class SlideDirection:
    """The marks of translated text on a slide; nothing changes if `language` is ""."""

    language: str = ""  # of the translation
    inherited: Mapping[int, Mapping[str, str]] = field(default_factory=dict)  # attributes, by the start of a paragraph

    @property
    def direction(self) -> str:
        """The direction of the language."""
        return direction_of(self.language)

    def paragraph(self, properties: str, prefix: str, start: int) -> str:
        """The properties of the translated paragraph that begins at this byte."""
        own = Source("", properties.encode()).root.attributes if properties else {}
        effective = {**DEFAULTS, **self.inherited.get(start, {}), **own}
        if not self.direction or _is_rtl(effective) == (self.direction == "rtl"):
            return properties
        new = {"rtl": str(int(self.direction == "rtl"))}
        if effective["algn"] in MIRRORED:
            new["algn"] = MIRRORED[effective["algn"]]
        return _with_attributes(properties or f"<{prefix}pPr/>", new)

    def runs(self, properties: str, prefix: str, text: str) -> Iterator[tuple[str, str]]:
        """A translated run; it has its language if that has another direction, or is an East Asian one."""
        own = Source("", properties.encode()).root.attributes if properties else {}
        locale = east_asian_locale(self.language)
        if locale or (self.direction and direction_of(own.get("lang", "en")) != self.direction):
            language = locale or self.language.replace("_", "-")
            properties = _with_attributes(properties or f"<{prefix}rPr/>", {"lang": language})
        yield properties, text

    def table_edits(self, slide: Source, prefix: str) -> Iterator[tuple[int, int, str]]:
        """The columns of tables in the direction of the translation."""
        for table in slide.root.every("tbl") if self.direction else ():
            own = table.child("tblPr")
            if _is_rtl(own.attributes if own else {}) != (self.direction == "rtl"):
                start, end = (own.start, own.end) if own else (table.inner, table.inner)
                properties = slide.text(start, end) or f"<{prefix}tblPr/>"
                yield start, end, _with_attributes(properties, {"rtl": str(int(self.direction == "rtl"))})


class SlideStyles:
    """The styles of a presentation."""

    def __init__(self, path: str, files: Mapping[str, bytes]) -> None:
        """`files` are those of the archive, with `PRESENTATION` and `RELATIONS`."""
        self._source = cache(lambda name: Source(f"{path}: {name}", files[name]) if name in files else None)

    def inherited(self, name: str, slide: Source) -> Mapping[int, Mapping[str, str]]:
        """The inherited properties of the paragraphs of a slide, by their start."""
        layout = self._related(name, "slideLayout")
        above = [one for one in (layout, self._related(layout, "slideMaster")) if one]
        default = self._source(PRESENTATION)
        found = {one.start: _merged(one, _styles(default, "defaultTextStyle")) for one in slide.root.every("p")}
        for shape in slide.root.every("sp"):
            own = [*shape.every("lstStyle"), *self._placeholder_styles(shape, above)]
            found |= {one.start: {**found[one.start], **_merged(one, own)} for one in shape.every("p")}
        return found

    def _related(self, name: str, kind: str) -> str:
        """The layout of a slide, or the master slide of a layout; "" without one."""
        relations = self._source(f"{dirname(name)}/_rels/{basename(name)}.rels")
        for one in relations.root.every("Relationship") if relations else ():
            if one.attributes.get("Type", "").endswith(f"/{kind}"):
                return normpath(join(dirname(name), one.attributes.get("Target", ""))).lstrip("/")
        return ""

    def _placeholder_styles(self, shape: Element, above: Sequence[str]) -> Iterator[Element]:
        """The styles of a placeholder, from the nearest to the most general."""
        placeholder = next(shape.every("ph"), None)
        for name in above:
            if placeholder is None:
                return
            source, is_master = self._source(name), name == above[-1]
            for other in source.root.every("sp") if source else ():
                if any(_is_same(placeholder, one, is_master) for one in other.every("ph")):
                    yield from other.every("lstStyle")
            group = {"title": "titleStyle", "body": "bodyStyle"}.get(_kind(placeholder), "otherStyle")
            yield from _styles(source, group) if is_master else ()


def _is_rtl(attributes: Mapping[str, str]) -> bool:
    return attributes.get("rtl") in ("1", "true")


def _kind(placeholder: Element) -> str:
    """The type of a placeholder: those of titles, or of content, are one."""
    kind = placeholder.attributes.get("type", "obj")
    return {"ctrTitle": "title", "subTitle": "body", "obj": "body"}.get(kind, kind)


def _is_same(one: Element, other: Element, is_master: bool) -> bool:
    """Whether a placeholder of a slide belongs to another one, of its layout or master slide."""
    indexes = {placeholder.attributes.get("idx", "0") for placeholder in (one, other)}
    return _kind(one) == _kind(other) and (is_master or len(indexes) == 1)


def _styles(source: Source | None, name: str) -> list[Element]:
    return list(source.root.every(name)) if source else []


def _merged(paragraph: Element, styles: Sequence[Element]) -> dict[str, str]:
    """The attributes of a paragraph's level; the first style counts most."""
    properties = paragraph.child("pPr")
    level = properties.attributes.get("lvl", "0") if properties else "0"
    name = f"lvl{int(level[:1]) + 1 if level[:1].isdecimal() else 1}pPr"
    found: dict[str, str] = {}
    for style in styles:
        own = style.child(name)
        found = {**(own.attributes if own else {}), **found}
    return found


def _with_attributes(element: str, values: Mapping[str, str]) -> str:
    """An element whose start tag has these attributes."""
    source = Source("", element.encode())
    root = source.root
    return with_attributes(source.text(0, root.inner), **values) + source.text(root.inner, root.end)

"""Writing direction and fonts in OpenDocument files (ISO/IEC 26300-1, 20.404): paragraphs, tables and sheets.

The direction of a paragraph is that of its style, so a translated paragraph gets an automatic style that differs from
its own in direction and alignment. LibreOffice writes `start` for left and `end` for right in both directions, so
`left` and `right` are written here. Weight, style and size of fonts have properties of their own for East Asian and for
complex scripts (20.191).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headwise.documents.markup.direction import direction_of, east_asian_locale, font_variant
from headwise.documents.markup.markup import Element, Source, with_attributes

NAMESPACES = {
    "xmlns:style": "urn:oasis:names:tc:opendocument:xmlns:style:1.0",
    "xmlns:fo": "urn:oasis:names:tc:opendocument:xmlns:xsl-fo-compatible:1.0",
    "xmlns:office": "urn:oasis:names:tc:opendocument:xmlns:office:1.0",
}
MODES = {"rtl": "rl-tb", "ltr": "lr-tb"}
ALIGNMENTS = {
    "rtl": {"": "right", "left": "right", "start": "right", "right": "left", "end": "left"},
    "ltr": {"": "left", "left": "right", "start": "right", "right": "left", "end": "left"},
}
FONTS = ("weight", "style", "size")
SHAPE_STYLES = {"text-style-name": "paragraph", "presentation:style-name": "presentation", "draw:style-name": "graphic"}

SpanEdit = tuple[int, int, str]


class DocumentStyles:
    """The styles that one part of a document uses: its automatic ones, and those that all parts share."""

    def __init__(self, part: Source, shared: Source | None) -> None:
        """`shared` is the file `styles.xml`."""
        self._every: dict[tuple[str, str], Element] = {}
        self._resolved: dict[tuple[str, str], dict[str, str]] = {}  # properties with those of the parents
        groups = list(shared.root.every("styles")) if shared else []
        self.automatic = part.root.child("automatic-styles")
        for group in (*groups, *([self.automatic] if self.automatic else [])):
            for one in group.children:
                self._every[_attribute(one, "family"), _attribute(one, "name")] = one
        children = self.automatic.children if self.automatic else ()
        self._automatic = {_attribute(one, "name"): one for one in children if _attribute(one, "family") == "paragraph"}
        self.names = {name for _, name in self._every}
        pages = shared.root.every("page-layout-properties") if shared else ()
        self.is_rtl_page = any(_attribute(one, "writing-mode").startswith("rl") for one in pages)

    def automatic_style(self, name: str) -> Element | None:
        """The automatic style of a paragraph; None if it is a shared one, or none."""
        return self._automatic.get(name)

    def paragraph(self, name: str, shape: Element | None) -> dict[str, str]:
        """The properties of a paragraph with this style in a shape of a slide."""
        found = self._properties("paragraph", name)
        for attribute, family in SHAPE_STYLES.items() if shape else ():
            found = {**self._properties(family, _attribute(shape, attribute)), **found}
        return {**self._own("paragraph", ""), **found}

    def _properties(self, family: str, name: str) -> dict[str, str]:
        """The properties of paragraphs from a style and its parents; each style is read once."""
        chain: dict[str, Element] = {}
        while name and name not in chain and (family, name) not in self._resolved:
            if (style := self._every.get((family, name))) is None:
                break
            chain[name] = style
            name = _attribute(style, "parent-style-name")
        found = self._resolved.get((family, name), {})
        for one in reversed(chain):
            found = self._resolved[family, one] = {**found, **self._own(family, one)}
        return found

    def _own(self, family: str, name: str) -> dict[str, str]:
        style = self._every.get((family, name))
        properties = style.child("paragraph-properties") if style else None
        return {key.rpartition(":")[2]: value for key, value in properties.attributes.items()} if properties else {}


@dataclass
class OpenDocumentDirection:
    """The marks of translated text in one part of a document; none if `language` is ""."""

    part: Source
    shared: Source | None
    language: str  # of the translation
    _new: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)  # names and XML, by style and alignment

    def __post_init__(self) -> None:
        """Read the styles."""
        self._direction = direction_of(self.language)
        self._styles = DocumentStyles(self.part, self.shared)
        self._is_workbook = any(True for _ in self.part.root.every("spreadsheet"))

    def start_tag(self, paragraph: Element, shape: Element | None) -> str:
        """The start tag of a paragraph if it is translated; cells of a workbook have no such marks."""
        tag = self.part.text(paragraph.start, paragraph.inner)
        name = next((one for one in paragraph.attributes if one.endswith(":style-name")), "text:style-name")
        base = paragraph.attributes.get(name, "")
        properties = self._styles.paragraph(base, shape) if self._direction else {}
        mode = properties.get("writing-mode", "page")
        is_rtl = self._styles.is_rtl_page if mode == "page" else mode.startswith("rl")
        if not self._direction or self._is_workbook or is_rtl == (self._direction == "rtl"):
            return tag
        align = ALIGNMENTS[self._direction].get(properties.get("text-align", ""), "")
        return with_attributes(tag, **{name: self._style_name(base, align)})

    def edits(self) -> Iterator[SpanEdit]:
        """The edits that any translation needs: fonts, tables, and styles for the paragraphs of `start_tag`."""
        yield from self._font_edits(self.part.root)
        automatic = self._styles.automatic
        for style in automatic.children if automatic and self._direction else ():
            group = f"{_attribute(style, 'family')}-properties"
            mode = _attribute(style.child(group), "writing-mode")
            is_wrong = mode.startswith("rl") != (self._direction == "rtl")
            if is_wrong and (group == "table-properties" or (group == "table-cell-properties" and mode)):
                yield self._with_properties(style, group, {})
        styles = "".join(xml for _, xml in self._new.values())
        if styles and automatic and automatic.inner < automatic.end:
            yield automatic.inner_end, automatic.inner_end, styles
        elif styles:
            root = self.part.root
            behind = next((one.start for one in root.children if one.name in ("body", "master-styles")), root.inner_end)
            start, end = (automatic.start, automatic.end) if automatic else (behind, behind)
            yield start, end, f"{self._tag('<office:automatic-styles>')}{styles}</office:automatic-styles>"

    def _style_name(self, base: str, align: str) -> str:
        """The name of an automatic style that differs from `base` in direction and alignment."""
        if (base, align) not in self._new:
            taken, number = self._styles.names, len(self._new) + 1
            while (name := f"{self._direction.upper()}_{number}") in taken:
                number += 1000
            self._new[base, align] = (name, self._style(name, base, align))
        return self._new[base, align][0]

    def _style(self, name: str, base: str, align: str) -> str:
        alignment = {"fo:text-align": align} if align else {}
        own = self._styles.automatic_style(base)
        if own and own.inner < own.end:
            opens = with_attributes(self._tag(self.part.text(own.start, own.inner)), **{"style:name": name})
            edits = [self._with_properties(own, "paragraph-properties", alignment), *self._font_edits(own)]
            return opens + self._edited(own.inner, own.end, edits)
        kept = own.attributes if own else {"style:parent-style-name": base} if base else {}
        opens = with_attributes(self._tag("<style:style>"), **{**kept, "style:name": name, "style:family": "paragraph"})
        values = {**alignment, "style:writing-mode": MODES[self._direction]}
        return f"{opens}{with_attributes('<style:paragraph-properties/>', **values)}</style:style>"

    def _tag(self, tag: str) -> str:
        """A start tag that declares the namespaces of styles, if the document does not."""
        return with_attributes(tag, **{k: uri for k, uri in NAMESPACES.items() if k not in self.part.root.attributes})

    def _with_properties(self, style: Element, group: str, values: Mapping[str, str]) -> SpanEdit:
        """An edit that sets the direction and other properties of a style."""
        values = {**values, "style:writing-mode": MODES[self._direction]}
        own = style.child(group)
        if own:
            return own.start, own.inner, with_attributes(self.part.text(own.start, own.inner), **values)
        at = next((one.start for one in style.children if one.name != "graphic-properties"), style.inner_end)
        return at, at, with_attributes(self._tag(f"<style:{group}/>"), **values)

    def _font_edits(self, element: Element) -> Iterator[SpanEdit]:
        """Fonts for the script of the translation, where a style has only those for others; its locale."""
        suffix, locale = font_variant(self.language), east_asian_locale(self.language)
        for properties in element.every("text-properties") if suffix else ():
            fonts = {name: properties.attributes.get(f"fo:font-{name}", "") for name in FONTS}
            new = {f"style:font-{name}-{suffix}": value for name, value in fonts.items() if value}
            new = {name: value for name, value in new.items() if name not in properties.attributes}
            if locale and "style:language-asian" in properties.attributes:
                new |= dict(zip(("style:language-asian", "style:country-asian"), locale.split("-"), strict=True))
            if new:
                tag = self.part.text(properties.start, properties.inner)
                yield properties.start, properties.inner, with_attributes(tag, **new)

    def _edited(self, start: int, end: int, edits: list[SpanEdit]) -> str:
        """A span of the file with edits."""
        pieces = list[str]()
        for first, last, text in sorted(edits):
            pieces += [self.part.text(start, first), text]
            start = last
        return "".join([*pieces, self.part.text(start, end)])


def _attribute(element: Element | None, name: str) -> str:
    """An attribute by the end of its name."""
    every = element.attributes.items() if element else ()
    return next((value for key, value in every if key == name or key.endswith(f":{name}")), "")

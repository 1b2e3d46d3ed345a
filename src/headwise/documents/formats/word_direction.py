"""Writing direction and script in Word documents (ECMA-376, part 1): paragraphs, runs, tables and styles.

`w:bidi` is the direction of a paragraph, and `w:jc` and `w:ind` refer to it (17.3.1.6, 17.3.1.13). `w:rtl` is that of a
run: mandatory for right-to-left letters and forbidden for others (17.3.2.30). A run with it has the formatting in
`w:bCs`, `w:iCs` and `w:szCs` instead of `w:b`, `w:i` and `w:sz`. `w:bidiVisual` orders the columns of a table.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headwise.documents.markup.direction import direction_of, east_asian_locale
from headwise.documents.markup.markup import Element, Source, with_attributes

RUN_ORDER = (
    *("rStyle", "rFonts", "b", "bCs", "i", "iCs", "caps", "smallCaps", "strike", "dstrike", "outline", "shadow"),
    *("emboss", "imprint", "noProof", "snapToGrid", "vanish", "webHidden", "color", "spacing", "w", "kern", "position"),
    *("sz", "szCs", "highlight", "u", "effect", "bdr", "shd", "fitText", "vertAlign", "rtl", "cs", "em", "lang"),
    *("eastAsianLayout", "specVanish", "oMath", "rPrChange"),
)
PARAGRAPH_ORDER = (
    *("pStyle", "keepNext", "keepLines", "pageBreakBefore", "framePr", "widowControl", "numPr", "suppressLineNumbers"),
    *("pBdr", "shd", "tabs", "suppressAutoHyphens", "kinsoku", "wordWrap", "overflowPunct", "topLinePunct"),
    *("autoSpaceDE", "autoSpaceDN", "bidi", "adjustRightInd", "snapToGrid", "spacing", "ind", "contextualSpacing"),
    *("mirrorIndents", "suppressOverlap", "jc", "textDirection", "textAlignment", "textboxTightWrap", "outlineLvl"),
    *("divId", "cnfStyle", "rPr", "sectPr", "pPrChange"),
)
TABLE_ORDER = (
    *("tblStyle", "tblpPr", "tblOverlap", "bidiVisual", "tblStyleRowBandSize", "tblStyleColBandSize", "tblW", "jc"),
    *("tblCellSpacing", "tblInd", "tblBorders", "shd", "tblLayout", "tblCellMar", "tblLook", "tblCaption"),
    *("tblDescription", "tblPrChange"),
)
COMPLEX_SCRIPT = {"b": "bCs", "i": "iCs", "sz": "szCs"}
LETTER = r"(?:(?![\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\U00010800-\U00010fff\U0001e800-\U0001efff])[^\W\d_])"
BETWEEN = r"[ \-.'\u2019/&@:_+#]"
WORDS = re.compile(rf"({LETTER}(?:{LETTER}|[0-9]|{BETWEEN}(?={BETWEEN}{{0,3}}(?:{LETTER}|[0-9])))*)")  # left to right


@dataclass(frozen=True)
class WordDirection:
    """The marks of translated text; nothing changes if `direction` is ""."""

    direction: str = ""  # as `direction.direction_of`
    in_styles: frozenset[str] = frozenset()  # names of marks that paragraphs and runs may have from their styles

    def paragraph(self, properties: str, prefix: str, start: int) -> str:
        """The properties of a translated paragraph; `start` is ignored."""
        return self._marked("pPr", "bidi", properties, prefix, PARAGRAPH_ORDER, self.direction)

    def table(self, properties: str, prefix: str) -> str:
        """The properties of a table."""
        return self._marked("tblPr", "bidiVisual", properties, prefix, TABLE_ORDER, self.direction)

    def runs(self, properties: str, prefix: str, text: str) -> Iterator[tuple[str, str]]:
        """A translated run as runs of one direction: their properties and texts."""
        parts = WORDS.split(text) if self.direction == "rtl" else [text]
        for number, one in enumerate(parts):
            if one:
                yield self._run(properties, prefix, "ltr" if number % 2 else self.direction), one

    def _run(self, properties: str, prefix: str, direction: str) -> str:
        old = _children(properties, prefix)
        was_rtl = _is_on(old.get("rtl", ""))
        names = {cs: name for name, cs in COMPLEX_SCRIPT.items()} if was_rtl else COMPLEX_SCRIPT
        if direction and was_rtl != (direction == "rtl"):
            properties = _with_children(properties, _renamed(old, names, prefix), prefix, RUN_ORDER)
        return self._marked("rPr", "rtl", properties, prefix, RUN_ORDER, direction)

    def _marked(self, group: str, name: str, properties: str, prefix: str, order: Sequence[str], direction: str) -> str:
        """Properties with this mark, or without it."""
        old = _children(properties, prefix).get(name, "")
        if direction == "rtl" and not _is_on(old):
            new = f"<{prefix}{name}/>"
        elif direction == "ltr" and (old or name in self.in_styles):
            new = f'<{prefix}{name} {prefix}val="0"/>' if name in self.in_styles else ""
        else:
            return properties
        return _with_children(properties or f"<{prefix}{group}></{prefix}{group}>", {name: new}, prefix, order)


def marks_in_styles(styles: Source | None) -> frozenset[str]:
    """The marks that a document's styles contain."""
    return frozenset(one.name for one in styles.root.every("bidi", "rtl", "bidiVisual")) if styles else frozenset()


def style_edits(styles: Source, language: str) -> Iterator[tuple[int, int, str]]:
    """Formatting for right-to-left text, where a style has only that for other text; the default East Asian locale."""
    locale, prefix = east_asian_locale(language), styles.prefix
    defaults = {one.start for group in styles.root.every("rPrDefault") for one in group.children}
    behind = 0
    for properties in styles.root.every("rPr"):
        if properties.start < behind:
            continue  # the former properties of a tracked change
        behind, text = properties.end, styles.text(properties.start, properties.end)
        old, new = _children(text, prefix), dict[str, str]()
        if direction_of(language) == "rtl":
            new = {cs: xml for cs, xml in _renamed(old, COMPLEX_SCRIPT, prefix).items() if cs not in old}
        elif locale and properties.start in defaults:
            new["lang"] = with_attributes(old.get("lang", f"<{prefix}lang/>"), **{f"{prefix}eastAsia": locale})
        if new:
            yield properties.start, properties.end, _with_children(text, new, styles.prefix, RUN_ORDER)


def table_edits(part: Source, element: Element, marks: WordDirection, prefix: str) -> Iterator[tuple[int, int, str]]:
    """The columns of tables in the direction of the translation; those in text boxes stay."""
    for child in element.children:
        if child.name == "tbl":
            own = child.child("tblPr")
            start, end = (own.start, own.end) if own else (child.inner, child.inner)
            new = marks.table(part.text(start, end), prefix)
            if new != part.text(start, end):
                yield start, end, new
        if child.name != "p":
            yield from table_edits(part, child, marks, prefix)


def _children(properties: str, prefix: str) -> dict[str, str]:
    """The XML of each property by its name."""
    source = Source("", properties.encode()) if properties else None
    every = {one.name: source.text(one.start, one.end) for one in source.root.children} if source else {}
    return {name: xml for name, xml in every.items() if xml.startswith(f"<{prefix}{name}")}


def _renamed(properties: Mapping[str, str], names: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Copies of properties under new names."""
    return {
        new: properties[name].replace(prefix + name, prefix + new, 1)
        for name, new in names.items()
        if name in properties
    }


def _is_on(mark: str) -> bool:
    return bool(mark) and not re.search(r"""val\s*=\s*["'](?:0|false|off)["']""", mark)


def _with_children(properties: str, new: Mapping[str, str], prefix: str, order: Sequence[str]) -> str:
    """Properties with these children, each at its place in the schema; "" removes one."""
    for name, xml in new.items():
        source = Source("", properties.encode())
        root, behind = source.root, order[order.index(name) + 1 :]
        own = [one for one in root.children if source.text(one.start, one.inner).startswith(f"<{prefix}{one.name}")]
        edits = [(one.start, one.end, "") for one in own if one.name == name]
        if xml and root.inner == root.end:
            group = source.text(root.start + 1, root.end).split("/")[0].split()[0]
            edits.append((root.start, root.end, f"<{group}>{xml}</{group}>"))
        elif xml:
            at = next((one.start for one in root.children if one not in own or one.name in behind), root.inner_end)
            edits.append((at, at, xml))
        properties = source.edited(edits).decode()
    return properties

"""Presentations and workbooks of Office Open XML (.pptx, .xlsx, ECMA-376).

In a presentation the paragraphs of slides, tables and notes are units, as in Word documents. In a workbook the shared
and inline strings are units, so that cells that share a string get the same translation. Formulas and their results,
names of sheets, and headers of tables stay, because formulas refer to them; so do comments, charts, diagrams and the
texts of slide layouts.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import escape, unescape

from headwise.documents.formats.archive import ArchiveDocument, PartPassage, PartTexts, read_archive, skipped_texts
from headwise.documents.formats.slide_direction import PRESENTATION, RELATIONS, SlideDirection, SlideStyles
from headwise.documents.formats.word import DRAWN_TEXT, Dialect, read_paragraphs, rich_text
from headwise.documents.markup.direction import direction_of
from headwise.documents.markup.markup import CONTROLS, Element, Source, with_attributes
from headwise.documents.not_translated import NO_LETTERS, beginning_of
from headwise.documents.unit import Parts, Skipped, plain
from headwise.errors import UserError

POWERPOINT = Dialect("", nested=False, has_breaks=False, marks=SlideDirection())
SLIDE = re.compile(r"ppt/(?:slides/slide|notesSlides/notesSlide)(\d+)\.xml")
DRAWING = re.compile(rb"xmlns:(\w+)\s*=\s*[\"']http://[\w.]+/[\w/.]*drawingml[\w/.]*main[\"']")
STRINGS, SHEET = "xl/sharedStrings.xml", re.compile(r"xl/worksheets/sheet\d+\.xml")
TABLE = re.compile(r"xl/tables/table\d+\.xml")
LAYOUT_TEXT = "text of a slide layout"
UNREAD = {  # files whose texts stay
    re.compile(r"(?:ppt|xl)/(?:charts/chart|diagrams/data)\d+\.xml"): DRAWN_TEXT,
    re.compile(r"(?:ppt|xl)/(?:threadedComments/|comments)(?:.*)\.xml"): "comment",
    re.compile(r"ppt/slide(?:Layouts/slideLayout|Masters/slideMaster)\d+\.xml"): LAYOUT_TEXT,
    re.compile(r"xl/drawings/drawing\d+\.xml"): "text of a drawing",
}


def read_presentation(path: str, data: bytes, languages: Sequence[str]) -> ArchiveDocument:
    """Read a PowerPoint presentation; a filled one has the writing direction of the second of the `languages`."""
    files = read_archive(path, data, "presentation", _is_presentation_text)
    slides = {name: content for name, content in files.items() if SLIDE.fullmatch(name)}
    if not slides:
        raise UserError(f"{path}: the archive has no slides (ppt/slides/slide1.xml); save it again as .pptx")
    parts = {name: Source(f"{path}: {name}", slides[name]) for name in sorted(slides, key=_slide_order)}
    styles = SlideStyles(path, files)
    texts = {name: _slide_texts(name, part, styles, languages[1]) for name, part in parts.items()}
    return ArchiveDocument(data, texts, list(_unread_texts(path, files)))


def _is_presentation_text(name: str) -> bool:
    return bool(SLIDE.fullmatch(name) or RELATIONS.fullmatch(name)) or name == PRESENTATION or bool(_unread(name))


def _slide_texts(name: str, part: Source, styles: SlideStyles, language: str) -> PartTexts:
    marks = SlideDirection(language, styles.inherited(name, part) if language else {})
    prefix = _drawing_prefix(part)
    edits = tuple(marks.table_edits(part, prefix))
    return read_paragraphs(part, prefix, replace(POWERPOINT, marks=marks), edits)


def _slide_order(name: str) -> tuple[bool, int]:
    found = SLIDE.fullmatch(name)
    assert found is not None
    return "notes" in name, int(found[1][:9])


def _drawing_prefix(part: Source) -> str:
    """The namespace prefix of paragraphs, with its colon."""
    found = DRAWING.search(part.data)
    return f"{found[1].decode()}:" if found else "a:"


def read_workbook(path: str, data: bytes, languages: Sequence[str]) -> ArchiveDocument:
    """Read an Excel workbook; the sheets of a filled one have the direction of the second of the `languages`."""
    files = read_archive(path, data, "workbook", _is_workbook_text)
    if "xl/workbook.xml" not in files:
        raise UserError(f"{path}: the archive has no xl/workbook.xml; save it again as .xlsx")
    headers = {
        unescape(column.attributes.get("name", "")).replace("_x000a_", "\n")
        for name, content in files.items()
        if TABLE.fullmatch(name)
        for column in Source(f"{path}: {name}", content).root.every("tableColumn")
    }
    parts, skipped = dict[str, PartTexts](), list(_unread_texts(path, files))
    for name, content in files.items():
        if name == STRINGS or SHEET.fullmatch(name):
            parts[name] = _strings(Source(f"{path}: {name}", content), headers, direction_of(languages[1]))
    return ArchiveDocument(data, parts, skipped)


def _is_workbook_text(name: str) -> bool:
    wanted = name in (STRINGS, "xl/workbook.xml") or SHEET.fullmatch(name) or TABLE.fullmatch(name)
    return bool(wanted) or bool(_unread(name))


def _unread(name: str) -> str:
    """The kind of the texts in a file that stays; "" for files without texts."""
    return next((kind for pattern, kind in UNREAD.items() if pattern.fullmatch(name)), "")


def _unread_texts(path: str, files: dict[str, bytes]) -> Iterator[Skipped]:
    """The texts that stay; not the instructions in the placeholders of a slide layout."""
    for name, content in files.items():
        if kind := _unread(name):
            part = Source(f"{path}: {name}", content)
            is_layout = kind == LAYOUT_TEXT
            shapes = [one for one in part.root.every("sp") if not any(one.every("ph"))] if is_layout else [part.root]
            for shape in shapes:
                yield from skipped_texts(part, shape, kind, ("t", "text"))


def _strings(part: Source, headers: set[str], direction: str) -> PartTexts:
    """The strings of a part: shared ones, or those in the cells of a sheet; results of formulas are counted."""
    edits = tuple(_view_edits(part, direction)) if direction else ()
    passages = [found for element in part.root.every("si", "is") for found in _string(part, element, headers)]
    results = [
        Skipped("result of a formula", cell.line, beginning_of(part.text(value.inner, value.inner_end)))
        for cell in part.root.every("c")
        if cell.attributes.get("t") == "str" and (value := cell.child("v")) is not None
    ]
    return PartTexts(part, passages, results, edits)


def _view_edits(sheet: Source, direction: str) -> Iterator[tuple[int, int, str]]:
    """The order of columns of a sheet; text in cells has the direction of its first letter (`readingOrder`)."""
    for view in sheet.root.every("sheetView"):
        if (view.attributes.get("rightToLeft") in ("1", "true")) != (direction == "rtl"):
            tag = sheet.text(view.start, view.inner)
            yield view.start, view.inner, with_attributes(tag, rightToLeft=str(int(direction == "rtl")))


def _string(part: Source, element: Element, headers: set[str]) -> Iterator[PartPassage]:
    """The text of a string, in one format or with runs; phonetic hints stay."""
    text = element.child("t")
    if text is not None:
        source = part.parts(text, lambda _: False)
        tag = part.text(text.start, text.inner)
        name = tag[1:].split()[0].rstrip("/>")
        kept = _kept(plain(source), headers)
        if source:
            yield PartPassage(text.start, text.end, source, lambda parts: _to_text(name, parts), kept)
        return
    texts = [(run, run.child("t")) for run in element.children if run.name == "r"]
    whole = "".join(part.text(one.inner, one.inner_end) for _, one in texts if one)
    if _kept(unescape(whole), headers):
        if whole.strip():
            yield PartPassage(element.inner, element.inner, (unescape(whole),), plain, _kept(unescape(whole), headers))
        return
    found = rich_text(part, element, part.prefix)
    if found is not None:
        yield PartPassage(found.start, found.end, found.source, found.to_xml)


def _kept(text: str, headers: set[str]) -> str:
    """The kind of a text that stays; "" for one to translate."""
    if not any(map(str.isalpha, text)):
        return NO_LETTERS
    return "table header" if text in headers else ""


def _to_text(name: str, parts: Parts) -> str:
    text = escape(CONTROLS.sub("", plain(parts)), quote=False)
    return f'<{name} xml:space="preserve">{text}</{name}>'

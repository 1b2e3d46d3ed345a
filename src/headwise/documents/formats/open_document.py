"""OpenDocument texts, spreadsheets and presentations (.odt, .ods, .odp, ISO/IEC 26300).

Paragraphs and headings are units, also those of headers, footers, notes, tables and comments. Formatted text and links
are between two codes, other elements (a tab, a note, an image) are one code each. Numbers, results of formulas, deleted
text, fields, and tables of contents stay.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from headwise.documents.formats.archive import ArchiveDocument, PartPassage, PartTexts, read_archive
from headwise.documents.formats.open_document_direction import OpenDocumentDirection
from headwise.documents.markup.markup import Element, Source, to_xml
from headwise.documents.not_translated import NO_LETTERS, beginning_of
from headwise.documents.unit import Code, Parts, Skipped, plain, strings_only
from headwise.errors import UserError

PARTS = ("content.xml", "styles.xml")
PARAGRAPHS = ("p", "h")
PAIRED = ("span", "a", "meta", "meta-field", "ruby-base", "ruby")
STAYS = {
    "tracked-changes": "deleted text",
    "ruby-text": "reading (ruby)",
    "table-of-content": "table of contents or index",
    **dict.fromkeys(
        ("illustration-index", "table-index", "object-index", "user-index", "alphabetical-index", "bibliography"),
        "table of contents or index",
    ),
}
MAX_INNER = 200  # paragraphs inside a paragraph with text
CONTROLS = re.compile(r"[\x00-\x1f]+")
BLANKS = re.compile(r"[ \t\r\n]+")  # as one


@dataclass
class _Found:
    """The texts of a part."""

    marks: OpenDocumentDirection
    passages: list[PartPassage] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)


def read_open_document(path: str, data: bytes, languages: Sequence[str]) -> ArchiveDocument:
    """Read an OpenDocument file; a filled one has the writing direction of the second of the `languages`."""
    files = read_archive(path, data, "OpenDocument file", lambda name: name in (*PARTS, "META-INF/manifest.xml"))
    if "content.xml" not in files:
        raise UserError(f"{path}: the archive has no content.xml; open it in LibreOffice and save it again")
    if b"encryption-data" in files.get("META-INF/manifest.xml", b""):
        raise UserError(f"{path}: the file is encrypted; save it without a password")
    sources = {name: Source(f"{path}: {name}", files[name]) for name in PARTS if name in files}
    marks = {
        name: OpenDocumentDirection(part, sources.get("styles.xml"), languages[1]) for name, part in sources.items()
    }
    return ArchiveDocument(data, {name: _texts(part, marks[name]) for name, part in sources.items()})


def _texts(part: Source, marks: OpenDocumentDirection) -> PartTexts:
    found = _Found(marks)
    _collect(part, part.root, found)
    return PartTexts(part, found.passages, found.skipped, tuple(marks.edits()))


def _collect(part: Source, element: Element, found: _Found, shape: Element | None = None) -> None:
    """Fill `found` with the texts in an element, which may be in a shape of a slide."""
    for child in element.children:
        kind = STAYS.get(child.name, "") or (_cell_kind(child) if child.name == "table-cell" else "")
        if kind:
            found.skipped += _skipped(part, child, kind)
        elif child.name in PARAGRAPHS:
            passage, inner = _paragraph(part, child, shape, found.marks), _Found(found.marks)
            _collect(part, child, inner, shape)
            found.passages += [passage] if passage else []
            if not passage and (signs := strings_only(part.parts(child, _is_paired))).strip():
                found.skipped.append(Skipped(NO_LETTERS, child.line, beginning_of(signs)))
            if passage and len(inner.passages) > MAX_INNER:
                found.skipped.append(Skipped("texts inside a paragraph", child.line))
            else:
                found.passages += inner.passages
            found.skipped += [*_fields(part, child), *inner.skipped]
        else:
            is_shape = any(
                name.endswith(":text-style-name") or name.startswith("presentation:") for name in child.attributes
            )
            _collect(part, child, found, child if is_shape else shape)


def _cell_kind(cell: Element) -> str:
    """The kind of a cell that stays; "" for a text."""
    if any(name.endswith(":formula") for name in cell.attributes):
        return "result of a formula"
    kind = next((value for name, value in cell.attributes.items() if name.endswith(":value-type")), "string")
    return "" if kind == "string" else "number or date"


def _skipped(part: Source, element: Element, kind: str) -> Iterator[Skipped]:
    for one in element.every(*PARAGRAPHS):
        text = plain(tuple(p for p in part.parts(one, _is_paired) if isinstance(p, str)))
        if any(map(str.isalpha, text)):
            yield Skipped(kind, one.line, beginning_of(text))


def _fields(part: Source, element: Element) -> Iterator[Skipped]:
    """The texts of elements that stay in a paragraph, without those of paragraphs and comments inside it."""
    for child in element.children:
        if child.name in (*PARAGRAPHS, "annotation"):
            continue
        text = "".join(one for one in part.parts(child, lambda _: False) if isinstance(one, str))
        if not _is_paired(child) and any(map(str.isalpha, text)):
            is_field = part.text(child.start, child.inner).startswith("<text:")
            kind = STAYS.get(child.name) or ("field" if is_field else f"<{child.name}>")
            yield Skipped(kind, child.line, beginning_of(text))
        yield from _fields(part, child)


def _is_paired(element: Element) -> bool:
    return element.name in PAIRED and element.inner_end > element.inner


def _paragraph(
    part: Source, element: Element, shape: Element | None, marks: OpenDocumentDirection
) -> PartPassage | None:
    """The text of a paragraph, or None without letters."""
    parts = tuple(BLANKS.sub(" ", one) if isinstance(one, str) else one for one in part.parts(element, _is_paired))
    if not any(any(map(str.isalpha, one)) for one in parts if isinstance(one, str)):
        return None
    start_tag = marks.start_tag(element, shape)
    return PartPassage(
        element.start,
        element.inner_end,
        parts,
        lambda target: start_tag + _to_xml(parts, target),
        is_marked=start_tag != part.text(element.start, element.inner),
    )


def _to_xml(source: Parts, target: Parts) -> str:
    """A translation; codes that it lost are appended, because notes and images must not disappear."""
    clean = tuple(CONTROLS.sub(" ", one) if isinstance(one, str) else one for one in target)
    left = [one for one in source if isinstance(one, Code) and not _is_tag(one)]
    for one in clean:
        if isinstance(one, Code) and one in left:
            left.remove(one)
    return to_xml((*clean, *left))


def _is_tag(code: Code) -> bool:
    """Whether a code is only a start or an end tag."""
    return code.text.startswith("</") or (code.text.count("<") == 1 and not code.text.endswith("/>"))

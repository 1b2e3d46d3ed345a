"""Word documents (.docx, ECMA-376): paragraphs of the text, tables, headers, footers, footnotes and endnotes.

A paragraph is a unit. Its most frequent format has no code; other formats (bold, a link) are between two codes, and
objects (an image, a tab, a field, a note number) are one code each. All other parts of the archive stay unchanged, as
do the paragraph's properties. Fields (a table of contents, page numbers), tracked deletions, and text boxes inside a
paragraph with text stay.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from html import escape
from io import BytesIO
from itertools import groupby
from pathlib import PurePosixPath
from typing import NamedTuple
from zipfile import BadZipFile, ZipFile
from zlib import error as ZlibError

from headwise.errors import UserError
from headwise.localisation.markup import Element, Source
from headwise.localisation.unit import Code, Parts, Skipped, Unit, UnitState, join_parts, plain

TEXT_PART = re.compile(r"word/(?:document|header|footer|footnotes|endnotes)\d*\.xml")
MAX_FILES, MAX_UNPACKED_BYTES = 10_000, 1 << 29  # files of an archive, and bytes when unpacked
CONTAINERS = ("hyperlink", "ins", "smartTag")
NOISE = ("proofErr", "lastRenderedPageBreak")
INVISIBLE = re.compile(r"<\w+:(?:lang|noProof)\b[^<>]*/>")  # properties of a run without visible effect
CODE = re.compile(r"<(/?)([gx])(\d+)/?>")
CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")


class RunSetting(NamedTuple):
    """The format of a run."""

    opens: str  # start tags of its containers
    closes: str
    properties: str


class RunPiece(NamedTuple):
    """A part of a paragraph: text or an object."""

    child: int  # index of the child of the paragraph
    setting: RunSetting
    text: str
    raw: str = ""  # XML of an object


@dataclass(frozen=True)
class Paragraph:
    """A text, with everything needed to write it."""

    start: int  # byte offset in its part of the archive
    end: int
    source: Parts
    settings: Sequence[RunSetting]  # code `<gN>` is for number N; 0 is the most frequent
    objects: Sequence[str]  # code `<xN/>` is for number N
    prefix: str  # namespace prefix

    def to_xml(self, parts: Parts) -> str:
        """A translation as runs; objects without a code in it are appended."""
        pieces, setting, left = list[str](), self.settings[0], dict(enumerate(self.objects))
        for part in parts:
            code = CODE.fullmatch(part.text) if isinstance(part, Code) and part.inline else None
            if code is None:
                pieces.append(self._run(setting, plain((part,))))
            elif code[2] == "x":
                pieces.append(left.pop(int(code[3]), ""))
            else:
                setting = self.settings[0 if code[1] else int(code[3])]
        return "".join([*pieces, *left.values()])

    def _run(self, setting: RunSetting, text: str) -> str:
        w = self.prefix
        lines = [
            f'<{w}t xml:space="preserve">{escape(line, quote=False)}</{w}t>'
            for line in CONTROLS.sub("", text).split("\n")
        ]
        return f"{setting.opens}<{w}r>{setting.properties}{f'<{w}br/>'.join(lines)}</{w}r>{setting.closes}"


class WordDocument:
    """A Word document."""

    def __init__(self, data: bytes, parts: Mapping[str, Source]) -> None:
        self._data, self._parts = data, parts
        self._paragraphs = [
            (name, one) for name, part in parts.items() for one in _paragraphs(part, part.root, part.prefix, _Fields())
        ]
        self.skipped: list[Skipped] = []
        ends = {name: [end.start() for end in re.finditer(b"\n", part.data)] for name, part in parts.items()}
        self.units = [
            Unit(one.source, (), UnitState.UNTRANSLATED, bisect_left(ends[name], one.start) + 1)
            for name, one in self._paragraphs
        ]

    def filled(self, targets: Mapping[int, Parts]) -> bytes:
        """See `unit.Document`."""
        edits: dict[str, list[tuple[int, int, str]]] = {}
        for number, parts in targets.items():
            name, one = self._paragraphs[number]
            edits.setdefault(name, []).append((one.start, one.end, one.to_xml(parts)))
        changed = {name: self._parts[name].edited(found) for name, found in edits.items()}
        return _repack(self._data, changed) if changed else self._data


class _Fields:
    """The number of open fields; a field may span paragraphs."""

    depth = 0

    def step(self, run: Element) -> bool:
        """Whether a run belongs to a field."""
        before = self.depth
        for mark in run.every("fldChar"):
            kind = next((value for name, value in mark.attributes.items() if name.endswith("fldCharType")), "")
            self.depth += {"begin": 1, "end": -1}.get(kind, 0)
        return before > 0 or self.depth > 0


def read_word(path: str, data: bytes, languages: Sequence[str]) -> WordDocument:
    """Read a Word document; `languages` are ignored."""
    try:
        with ZipFile(BytesIO(data)) as archive:
            _check(path, archive)
            names = [name for name in archive.namelist() if TEXT_PART.fullmatch(name)]
            parts = {name: Source(f"{path}: {name}", archive.read(name)) for name in names}
    except (BadZipFile, ZlibError, EOFError, OSError, RuntimeError, NotImplementedError) as error:
        raise UserError(f"{path}: not a Word document ({error}); open it in Word and save it as .docx") from error
    if not any(name.startswith("word/document") for name in parts):
        raise UserError(f"{path}: the archive has no word/document.xml; open it in Word and save it as .docx")
    return WordDocument(data, parts)


def _check(path: str, archive: ZipFile) -> None:
    """`UserError` for archives that are too large when unpacked, or with unsafe paths."""
    files = archive.infolist()
    if len(files) > MAX_FILES or sum(one.file_size for one in files) > MAX_UNPACKED_BYTES:
        raise UserError(
            f"{path}: unpacks to more than {MAX_FILES:,} files or {MAX_UNPACKED_BYTES >> 20} MiB; split the document"
        )
    for one in files:
        if one.filename.startswith("/") or "\\" in one.filename or ".." in PurePosixPath(one.filename).parts:
            raise UserError(f"{path}: unsafe path '{one.filename}' in the archive; open it in Word and save it again")
    names = archive.namelist()
    if len(set(names)) < len(names):
        raise UserError(f"{path}: two files of the same name in the archive; open it in Word and save it again")


def _repack(data: bytes, changed: Mapping[str, bytes]) -> bytes:
    """The archive with new contents for some of its files."""
    written = BytesIO()
    with ZipFile(BytesIO(data)) as old, ZipFile(written, "w") as new:
        new.comment = old.comment
        for one in old.infolist():
            content = changed[one.filename] if one.filename in changed else old.read(one)
            new.writestr(copy(one), content)
    return written.getvalue()


# --- paragraphs


def _paragraphs(part: Source, element: Element, prefix: str, fields: _Fields) -> Iterator[Paragraph]:
    for child in element.children:
        is_paragraph = child.name == "p" and part.text(child.start, child.inner).startswith(f"<{prefix}p")
        found = _paragraph(part, child, prefix, fields) if is_paragraph else None
        if found:
            yield found
        elif child.children:
            yield from _paragraphs(part, child, prefix, fields if not is_paragraph else _Fields())


def _paragraph(part: Source, element: Element, prefix: str, fields: _Fields) -> Paragraph | None:
    """None without text, and inside a field that spans paragraphs."""
    open_before = fields.depth > 0
    pieces = [p for n, child in enumerate(element.children) for p in _pieces(part, child, n, prefix, fields, None)]
    texts = [piece.child for piece in pieces if not piece.raw and any(map(str.isalpha, piece.text))]
    if not texts or open_before or fields.depth > 0:
        return None
    first, last = element.children[texts[0]], element.children[texts[-1]]
    inside = _merge_objects([piece for piece in pieces if texts[0] <= piece.child <= texts[-1]])
    source, settings = _with_format_codes(inside)
    objects = [piece.raw for piece in inside if piece.raw]
    return Paragraph(first.start, last.end, source, settings, objects, prefix)


def _merge_objects(pieces: Sequence[RunPiece]) -> list[RunPiece]:
    """Merge adjacent objects: a field is several runs, in this order."""
    found: list[RunPiece] = []
    for is_object, run in groupby(pieces, lambda piece: bool(piece.raw)):
        several = list(run)
        found += [several[0]._replace(raw="".join(one.raw for one in several))] if is_object else several
    return found


def _pieces(
    part: Source, element: Element, child: int, prefix: str, fields: _Fields, around: RunSetting | None
) -> Iterator[RunPiece]:
    """The parts of a child of a paragraph."""
    around = around or RunSetting("", "", "")
    if element.name in CONTAINERS and element.inner_end > element.inner:
        opens, closes = part.text(element.start, element.inner), part.text(element.inner_end, element.end)
        inner = RunSetting(around.opens + opens, closes + around.closes, "")
        for one in element.children:
            yield from _pieces(part, one, child, prefix, fields, inner)
    elif element.name == "r" and not fields.step(element):
        yield from _run(part, element, child, prefix, around)
    elif element.name not in (*NOISE, "pPr"):
        yield RunPiece(child, around, "", around.opens + part.text(element.start, element.end) + around.closes)


def _run(part: Source, run: Element, child: int, prefix: str, around: RunSetting) -> Iterator[RunPiece]:
    own = run.child("rPr")
    setting = around._replace(properties=part.text(own.start, own.end) if own else "")
    for one in run.children:
        if one.name == "t":
            yield RunPiece(child, setting, "".join(p for p in part.parts(one, lambda _: False) if isinstance(p, str)))
        elif one.name in ("br", "cr") and not one.attributes:
            yield RunPiece(child, setting, "\n")
        elif one.name not in (*NOISE, "rPr"):
            raw = f"<{prefix}r>{setting.properties}{part.text(one.start, one.end)}</{prefix}r>"
            yield RunPiece(child, setting, "", around.opens + raw + around.closes)


def _with_format_codes(pieces: Sequence[RunPiece]) -> tuple[Parts, list[RunSetting]]:
    """A text with format codes, and the formats; the most frequent format is the first and has no code."""
    size: dict[RunSetting, int] = {}
    for piece in pieces:
        size[_visible(piece.setting)] = size.get(_visible(piece.setting), 0) + len(piece.text)
    common = max(size, key=lambda setting: size[setting])
    settings = [next(piece.setting for piece in pieces if _visible(piece.setting) == common)]
    parts: list[str | Code] = []
    current, n_objects = common, 0
    for piece in pieces:
        wanted = current if not piece.raw and not piece.text.strip() else _visible(piece.setting)
        wanted = common if piece.raw else wanted
        if wanted != current:
            parts += [Code(f"</g{len(settings) - 1}>", inline=True)] * (current != common)
            if wanted != common:
                settings.append(piece.setting)
                parts.append(Code(f"<g{len(settings) - 1}>", inline=True))
            current = wanted
        parts.append(Code(f"<x{n_objects}/>", inline=True) if piece.raw else piece.text)
        n_objects += bool(piece.raw)
    return join_parts([*parts, *[Code(f"</g{len(settings) - 1}>", inline=True)] * (current != common)]), settings


def _visible(setting: RunSetting) -> RunSetting:
    properties = INVISIBLE.sub("", setting.properties)
    return setting._replace(properties="" if re.fullmatch(r"<\w+:rPr>\s*</\w+:rPr>", properties) else properties)

"""Word documents (.docx, ECMA-376): text, tables, text boxes, headers, footers, notes and comments.

A paragraph is a unit. Its most frequent format has no code; other formats (bold, a link) are between two codes, and
objects (an image, a tab, a field, a note number, also one that is typed as a superscript) are one code each. All other
parts of the archive stay unchanged, as do the paragraph's properties, except for the writing direction
(`word_direction.py`). Fields (a table of contents, page numbers; not links in one paragraph), tracked deletions and
choices of content controls stay.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import groupby, takewhile
from typing import NamedTuple, Protocol, runtime_checkable

from headwise.documents.formats.archive import ArchiveDocument, PartPassage, PartTexts, read_archive, skipped_texts
from headwise.documents.formats.word_direction import WordDirection, marks_in_styles, style_edits, table_edits
from headwise.documents.markup.direction import direction_of
from headwise.documents.markup.markup import CONTROLS, Element, Source
from headwise.documents.not_translated import NO_LETTERS, beginning_of
from headwise.documents.unit import Code, Document, Parts, Skipped, join_parts, plain
from headwise.errors import UserError

STYLES = "word/styles.xml"
TEXT_PART = re.compile(r"word/(?:document|header|footer|footnotes|endnotes|comments)\d*\.xml")
DRAWN_PART, DRAWN_TEXT = re.compile(r"word/(?:charts/chart|diagrams/data)\d+\.xml"), "text of a chart or diagram"
MAX_INNER = 200  # paragraphs inside a paragraph with text
CONTAINERS = ("hyperlink", "ins", "smartTag", "customXml", "moveTo", "bdo", "dir")
CHOICES = ("dropDownList", "comboBox", "date", "picture", "checkbox", "docPartObj", "equation")  # content controls
STAYS = {  # elements with text, of paragraphs and runs
    **dict.fromkeys(("del", "moveFrom"), "deleted text"),
    **dict.fromkeys(("r", "fldSimple", "fld"), "field"),
    **dict.fromkeys(("oMath", "oMathPara"), "formula"),
    **{"sdt": "choice", "rt": "reading (ruby)"},
}
NOISE = ("proofErr", "lastRenderedPageBreak")
INVISIBLE = re.compile(  # properties of a run without visible effect: elements in Word, attributes in PowerPoint
    r"<\w+:(?:lang|noProof|rtl)\b[^<>]*/>|\s(?:altLang|bmk|dirty|err|lang|noProof|smtClean|smtId)=(?:\"[^\"]*\"|'[^']*')"
)
RAISED = re.compile(  # a superscript or subscript: an element in Word and Excel, an attribute in PowerPoint
    r"vertAlign\s[^<>]{0,99}val=[\"']su(?:per|b)script|\sbaseline=[\"']-?0*[1-9]"
)
NO_PROPERTIES = re.compile(r"<(?:\w+:)?rPr\s*(?:/>|>\s*</(?:\w+:)?rPr>)")
TAB = re.compile(r"<\w+:p?tab\b[^<>]*/></\w+:r>")
CODE = re.compile(r"<(/?)([gmx])(\d+)/?>")
UNSEEN = re.compile(  # elements that do not separate words: positions, deleted text, hyphens, instructions of fields
    r"\w+Range(?:Start|End)|(?:bookmark|perm)(?:Start|End)|del|moveFrom|softHyphen|commentReference|annotationRef|fldChar|"
    r"instrText|delInstrText|fldData"
)
LINE_END = re.compile(r"\r?\n")  # a blank in the text of a run
HYPHEN = "\u2011"  # written as an element of its own


class RunSetting(NamedTuple):
    """The format of a run."""

    containers: tuple[tuple[str, str], ...] = ()  # start and end tags, from the outermost one
    properties: str = ""


class RunPiece(NamedTuple):
    """A part of a paragraph: text or an object."""

    child: int  # index of the child of the paragraph
    setting: RunSetting
    text: str
    raw: str = ""  # XML of an object
    is_unseen: bool = False  # whether it does not separate words


@dataclass(frozen=True)
class Paragraph:
    """A text, with everything needed to write it."""

    start: int  # byte offset in its part of the archive
    end: int
    source: Parts
    settings: Sequence[RunSetting]  # code `<gN>` is for number N; 0 is the most frequent
    objects: Sequence[
        RunSetting
    ]  # with their XML as properties; code `<xN/>` is for number N, or `<mN/>` if it does not separate words
    prefix: str  # namespace prefix
    dialect: "Dialect"
    lead: str = ""  # what it begins with, up to its text

    def to_xml(self, parts: Parts) -> str:
        """A translation as runs; objects without a code in it are appended."""
        pieces, setting, left = list[RunSetting](), self.settings[0], dict(enumerate(self.objects))
        for part in parts:
            code = CODE.fullmatch(part.text) if isinstance(part, Code) and part.inline else None
            if code is None:
                pieces.append(setting._replace(properties=self._runs(setting, plain((part,)))))
            elif code[2] in "mx":
                pieces.append(left.pop(int(code[3]), RunSetting()))
            else:
                setting = self.settings[0 if code[1] else int(code[3])]
        found, opened = [self.lead], RunSetting().containers
        for piece in [*pieces, *left.values(), RunSetting()]:  # one link around several runs
            pairs = zip(opened, piece.containers, strict=False)
            same = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
            found += [closes for _, closes in reversed(opened[same:])]
            found += [opens for opens, _ in piece.containers[same:]]
            found.append(piece.properties)
            opened = piece.containers
        return "".join(found)

    def _runs(self, setting: RunSetting, text: str) -> str:
        runs = self.dialect.marks.runs(setting.properties, self.prefix, CONTROLS.sub("", text))
        return "".join(self.dialect.run(*run, self.prefix) for run in runs)


@runtime_checkable
class DirectionMarks(Protocol):
    """The marks that a translation needs if its writing direction may be another."""

    def paragraph(self, properties: str, prefix: str, start: int) -> str:
        """The properties of the translated paragraph that begins at this byte; "" = none."""
        ...

    def runs(self, properties: str, prefix: str, text: str) -> Iterator[tuple[str, str]]:
        """A translated run as one or more: their properties and texts."""
        ...


@dataclass(frozen=True)
class Dialect:
    """The differences between Word, PowerPoint and Excel."""

    text_attributes: str  # of an element with text
    nested: bool  # whether paragraphs may contain others, in text boxes
    has_breaks: bool  # whether runs may contain elements for line breaks and hyphens
    marks: DirectionMarks

    def run(self, properties: str, text: str, w: str) -> str:
        """A run with this text; `w` is the prefix of its namespace."""
        elements = {"\n": f"<{w}br/>", HYPHEN: f"<{w}noBreakHyphen/>"} if self.has_breaks else {}
        texts = re.split(f"([{''.join(elements)}])", text) if elements else [text]
        found = [
            elements.get(one) or f"<{w}t{self.text_attributes}>{escape(one, quote=False)}</{w}t>"
            for one in texts
            if one or len(texts) == 1
        ]
        return f"<{w}r>{properties}{''.join(found)}</{w}r>"


WORD = Dialect(' xml:space="preserve"', nested=True, has_breaks=True, marks=WordDirection())
EXCEL = Dialect(' xml:space="preserve"', nested=False, has_breaks=False, marks=WordDirection())


class _Fields:
    """The number of open fields; a field may span paragraphs."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.depth = 0
        self.skipped: list[Skipped] = []

    def skip(self, part: Source, element: Element) -> None:
        """Note the text of an element that stays, if it has letters; paragraphs inside are texts of their own."""
        kind = STAYS.get(element.name, f"<{element.name}>")
        for one in _own_texts(element):
            text = part.text(one.inner, one.inner_end)
            if any(map(str.isalpha, text)):
                self.skipped.append(Skipped(kind, one.line, beginning_of(text)))

    def step(self, run: Element) -> bool:
        """Whether a run belongs to a field."""
        before = self.depth
        for mark in run.every("fldChar"):
            self.depth += {"begin": 1, "end": -1}.get(_mark_kind(mark), 0)
        return before > 0 or self.depth > 0


def read_word(path: str, data: bytes, languages: Sequence[str]) -> ArchiveDocument:
    """Read a Word document; a filled one has the writing direction of the second of the `languages`."""
    wanted = re.compile(f"{TEXT_PART.pattern}|{DRAWN_PART.pattern}|{re.escape(STYLES)}")
    parts = read_archive(path, data, "Word document", lambda name: wanted.fullmatch(name) is not None)
    if not any(name.startswith("word/document") for name in parts):
        raise UserError(f"{path}: the archive has no word/document.xml; open it in Word and save it as .docx")
    sources = {name: Source(f"{path}: {name}", part) for name, part in parts.items()}
    styles = sources.pop(STYLES, None)
    drawn = [sources.pop(name) for name in list(sources) if DRAWN_PART.fullmatch(name)]
    skipped = [one for part in drawn for one in skipped_texts(part, part.root, DRAWN_TEXT, ("t",))]
    marks = WordDirection(direction_of(languages[1]), marks_in_styles(styles))
    texts: dict[str, Document] = {}
    for name, part in sources.items():
        edits = table_edits(part, part.root, marks, part.prefix)
        texts[name] = read_paragraphs(part, part.prefix, replace(WORD, marks=marks), tuple(edits))
    if styles:
        texts[STYLES] = PartTexts(styles, (), (), tuple(style_edits(styles, languages[1])))
    return ArchiveDocument(data, texts, skipped)


def read_paragraphs(
    part: Source, prefix: str, dialect: Dialect, edits: Sequence[tuple[int, int, str]] = ()
) -> PartTexts:
    """The paragraphs of an XML file; `prefix` is that of their namespace, and `edits` are those of any translation."""
    fields = _Fields(dialect)
    found = [
        PartPassage(one.start, one.end, one.source, one.to_xml, is_marked=bool(one.lead))
        for one in _paragraphs(part, part.root, prefix, fields)
    ]
    return PartTexts(part, found, fields.skipped, edits)


# --- paragraphs


def _paragraphs(part: Source, element: Element, prefix: str, fields: _Fields) -> Iterator[Paragraph]:
    for child in element.children:
        is_paragraph = child.name == "p" and part.text(child.start, child.inner).startswith(f"<{prefix}p")
        found = _paragraph(part, child, prefix, fields) if is_paragraph else None
        if found:
            yield found
        if found and fields.dialect.nested:
            inner = list(_paragraphs(part, child, prefix, _nested(fields)))
            yield from inner if len(inner) <= MAX_INNER else ()
            if len(inner) > MAX_INNER:
                fields.skipped.append(Skipped("text boxes of a paragraph", child.line))
        elif not found and child.children:
            yield from _paragraphs(part, child, prefix, fields if not is_paragraph else _nested(fields))


def rich_text(part: Source, element: Element, prefix: str) -> Paragraph | None:
    """The runs in an element as a text, such as a cell of a workbook; None without letters."""
    return _paragraph(part, element, prefix, _Fields(EXCEL))


def _nested(fields: _Fields) -> _Fields:
    """The fields of a paragraph inside another one."""
    inner = _Fields(fields.dialect)
    inner.skipped = fields.skipped
    return inner


def _own_texts(element: Element) -> Iterator[Element]:
    """The elements with text in an element, without those of paragraphs inside it."""
    for child in element.children:
        if child.name in ("t", "delText"):
            yield child
        elif child.name != "p":
            yield from _own_texts(child)


def _paragraph(part: Source, element: Element, prefix: str, fields: _Fields) -> Paragraph | None:
    """None without text, and inside a field that spans paragraphs."""
    open_before = fields.depth > 0
    links = {} if open_before else {n: link for link in _links(part, element) for n in range(link.first, link.last + 1)}
    pieces = [
        piece
        for n, child in enumerate(element.children)
        if n not in links or n in links[n].content
        for piece in _pieces(part, child, n, prefix, fields, links[n].setting if n in links else None)
    ]
    pieces = _with_marks(pieces, prefix, fields.dialect)
    shown = _text_span(pieces)
    if shown and (open_before or fields.depth > 0):
        text = "".join(piece.text for piece in pieces)
        fields.skipped.append(Skipped(STAYS["fld"], element.line, beginning_of(text)))
    elif not shown and (text := "".join(piece.text for piece in pieces)).strip():
        fields.skipped.append(Skipped(NO_LETTERS, element.line, beginning_of(text)))
    if not shown or open_before or fields.depth > 0:
        return None
    first, last = (pieces[n].child for n in shown)
    first, last = links[first].first if first in links else first, links[last].last if last in links else last
    inside = _merge_objects([piece for piece in pieces if first <= piece.child <= last])
    source, settings = _with_format_codes(inside)
    objects = [piece.setting._replace(properties=piece.raw) for piece in inside if piece.raw]
    start, end = element.children[first].start, element.children[last].end
    lead = _lead(part, element, start, prefix, fields.dialect.marks)
    start = element.inner if lead else start
    return Paragraph(start, end, source, settings, objects, prefix, fields.dialect, lead)


def _with_marks(pieces: Sequence[RunPiece], prefix: str, dialect: Dialect) -> list[RunPiece]:
    """Pieces in which superscripts and subscripts without letters are objects, except inside a word (H2O)."""
    found, letters = list[RunPiece](), ["", *("" if piece.raw else piece.text for piece in pieces), ""]
    for is_raised, several in groupby(
        enumerate(pieces), lambda one: RAISED.search(one[1].setting.properties) is not None
    ):
        run = list(several)
        (first, _), (last, _) = run[0], run[-1]
        text = "".join(piece.text for _, piece in run)
        in_word = letters[first][-1:].isalpha() and letters[last + 2][:1].isalpha()
        is_mark = is_raised and bool(text.strip()) and not any(map(str.isalpha, text)) and not in_word
        for _, piece in run:
            raw = dialect.run(piece.setting.properties, piece.text, prefix) if is_mark and piece.text else piece.raw
            found.append(piece._replace(text="" if is_mark else piece.text, raw=raw))
    return found


def _text_span(pieces: Sequence[RunPiece]) -> tuple[int, int] | None:
    """The first and the last piece of a text: those with letters, and signs beside them; None without letters.

    Signs beyond a tab, such as the number of a list or of a page, are no part of it.
    """
    letters = [n for n, piece in enumerate(pieces) if not piece.raw and any(map(str.isalpha, piece.text))]
    if not letters:
        return None
    ends = list[int]()
    for end, step in ((letters[0], -1), (letters[-1], 1)):
        found = end
        while 0 <= end + step < len(pieces) and not _is_tab(pieces[end + step]):
            end += step
            found = end if pieces[end].text.strip() else found
        ends.append(found)
    return ends[0], ends[1]


def _is_tab(piece: RunPiece) -> bool:
    return TAB.fullmatch(piece.raw.replace(piece.setting.properties, "", 1).partition(">")[2]) is not None


def _lead(part: Source, paragraph: Element, end: int, prefix: str, marks: DirectionMarks) -> str:
    """A paragraph up to its text with new marks; "" if they are those it has."""
    own = paragraph.child("pPr")
    start, behind = (own.start, own.end) if own else (paragraph.inner, paragraph.inner)
    new = marks.paragraph(part.text(start, behind), prefix, paragraph.start)
    return part.text(paragraph.inner, start) + new + part.text(behind, end) if new != part.text(start, behind) else ""


class FieldLink(NamedTuple):
    """A link that is a field: its runs are children of a paragraph."""

    first: int  # index of the child that begins the field
    content: range  # children with its text
    last: int  # child that ends it
    setting: RunSetting


def _links(part: Source, paragraph: Element) -> Iterator[FieldLink]:
    """The HYPERLINK fields of a paragraph that are in no other field, and whose marks have runs of their own."""
    children, opened = paragraph.children, list[tuple[int, list[str], list[int]]]()
    for n, child in enumerate(children):
        for mark in child.children if child.name == "r" else ():
            if mark.name == "instrText" and opened:
                opened[-1][1].append(part.text(mark.inner, mark.inner_end))
            kind = _mark_kind(mark) if mark.name == "fldChar" else ""
            if kind == "begin":
                opened.append((n, [], []))
            elif kind == "separate" and opened:
                opened[-1][2].append(n)
            elif kind == "end" and opened:
                first, instruction, separators = opened.pop()
                marks = [*children[first : separators[0] + 1], child] if separators else []
                is_link = "".join(instruction).split()[:1] == ["HYPERLINK"]
                if is_link and marks and not opened and all(map(_has_only_marks, marks)):
                    opens = part.text(children[first].start, children[separators[0]].end)
                    setting = RunSetting(((opens, part.text(child.start, child.end)),))
                    yield FieldLink(first, range(separators[0] + 1, n), n, setting)


def _has_only_marks(child: Element) -> bool:
    return child.name == "r" and all(one.name in ("rPr", "fldChar", "instrText") for one in child.children)


def _mark_kind(mark: Element) -> str:
    """begin, separate or end."""
    return next((value for name, value in mark.attributes.items() if name.endswith("fldCharType")), "")


def _merge_objects(pieces: Sequence[RunPiece]) -> list[RunPiece]:
    """Merge adjacent objects in one container: a field is several runs, in this order."""
    found: list[RunPiece] = []
    for (is_object, _), run in groupby(
        pieces, lambda piece: (bool(piece.raw), bool(piece.raw) and piece.setting.containers)
    ):
        several = list(run)
        unseen = all(one.is_unseen for one in several)
        whole = several[0]._replace(raw="".join(one.raw for one in several), is_unseen=unseen)
        found += [whole] if is_object else several
    return found


def _pieces(
    part: Source, element: Element, child: int, prefix: str, fields: _Fields, around: RunSetting | None
) -> Iterator[RunPiece]:
    """The parts of a child of a paragraph."""
    around = around or RunSetting()
    content = _container(element)
    if content is not None and fields.depth == 0:
        yield from _inside(part, element, content, child, prefix, fields, around)
    elif element.name == "r" and not fields.step(element):
        yield from _run(part, element, child, prefix, fields, around)
    elif element.name not in (*NOISE, "pPr"):
        if element.name != "r":
            fields.step(element)  # tracked changes may contain the end of a field
        fields.skip(part, element)
        own = element.children if element.name == "r" else [element]
        is_unseen = all(one.name == "rPr" or UNSEEN.fullmatch(one.name) for one in own)
        yield RunPiece(child, around, "", part.text(element.start, element.end), is_unseen)


def _inside(
    part: Source, element: Element, content: Element, child: int, prefix: str, fields: _Fields, around: RunSetting
) -> Iterator[RunPiece]:
    """The parts of a container, whose runs are in `content`, behind its properties."""
    inner = [one for one in content.children if not one.name.endswith("Pr")]
    start = inner[0].start if inner else content.inner_end
    tags = part.text(element.start, start), part.text(content.inner_end, element.end)
    for one in inner:
        yield from _pieces(part, one, child, prefix, fields, RunSetting((*around.containers, tags)))


def _container(element: Element) -> Element | None:
    """The element with the runs of a container; None for an object, such as a list of choices."""
    if element.inner_end <= element.inner:
        return None
    if element.name == "sdt":
        settings, content = element.child("sdtPr"), element.child("sdtContent")
        is_text = settings is None or not any(one.name in CHOICES for one in settings.children)
        return content if is_text else None
    if element.name == "fldSimple":
        instruction = next((text for name, text in element.attributes.items() if name.endswith("instr")), "")
        return element if instruction.split()[:1] == ["HYPERLINK"] else None
    return element if element.name in CONTAINERS else None


def _run(
    part: Source, run: Element, child: int, prefix: str, fields: _Fields, around: RunSetting
) -> Iterator[RunPiece]:
    own = run.child("rPr")
    setting = around._replace(properties=part.text(own.start, own.end) if own else "")
    for one in run.children:
        base = one.child("rubyBase") if one.name == "ruby" else None
        if one.name == "t":
            text = "".join(p for p in part.parts(one, lambda _: False) if isinstance(p, str))
            yield RunPiece(child, setting, LINE_END.sub(" ", text) if fields.dialect.has_breaks else text)
        elif one.name in ("br", "cr") and not one.attributes:
            yield RunPiece(child, setting, "\n")
        elif one.name == "noBreakHyphen":
            yield RunPiece(child, setting, HYPHEN)
        elif base is not None:
            for reading in one.every("rt"):
                fields.skip(part, reading)
            tags = (
                f"<{prefix}r>{setting.properties}{part.text(one.start, base.inner)}",
                f"{part.text(base.inner_end, one.end)}</{prefix}r>",
            )
            for inner in base.children:
                yield from _pieces(part, inner, child, prefix, fields, RunSetting((*around.containers, tags)))
        elif one.name not in (*NOISE, "rPr"):
            fields.skip(part, one)
            raw = f"<{prefix}r>{setting.properties}{part.text(one.start, one.end)}</{prefix}r>"
            yield RunPiece(child, setting, "", raw, UNSEEN.fullmatch(one.name) is not None)


def _with_format_codes(pieces: Sequence[RunPiece]) -> tuple[Parts, list[RunSetting]]:
    """A text with format codes, and the formats; the most frequent format is the first and has no code."""
    size, exact = Counter[RunSetting](), Counter[RunSetting]()
    for piece in pieces:
        size[_visible(piece.setting)] += len(piece.text)
        exact[piece.setting] += len(piece.text)
    ((common, _),) = size.most_common(1)
    settings = [next(setting for setting, _ in exact.most_common() if _visible(setting) == common)]
    parts: list[str | Code] = []
    current, n_objects = common, 0
    for piece in pieces:
        is_blank = not piece.raw and not piece.text.strip() and piece.setting.containers == current.containers
        wanted = current if is_blank else _visible(piece.setting)
        wanted = common if piece.raw else wanted
        if wanted != current:
            parts += [Code(f"</g{len(settings) - 1}>", inline=True)] * (current != common)
            if wanted != common:
                settings.append(piece.setting)
                parts.append(Code(f"<g{len(settings) - 1}>", inline=True))
            current = wanted
        kind = "m" if piece.is_unseen else "x"
        parts.append(Code(f"<{kind}{n_objects}/>", inline=True) if piece.raw else piece.text)
        n_objects += bool(piece.raw)
    return join_parts([*parts, *[Code(f"</g{len(settings) - 1}>", inline=True)] * (current != common)]), settings


def _visible(setting: RunSetting) -> RunSetting:
    properties = INVISIBLE.sub("", setting.properties)
    return setting._replace(properties=NO_PROPERTIES.sub("", properties))

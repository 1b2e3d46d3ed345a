"""Readers of document formats that are independent of `headwise.documents`, for `round_trips.py`.

Each returns what a translation must not change, such as the elements of a page, and the number of problems that the
reader reports. Some are optional packages; `missing_readers` names those that are not installed.
"""

import csv
import importlib.util
import io
import json
import plistlib
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from zipfile import ZipFile

import docx
import openpyxl
import pptx
import yaml

OFFICE: dict[str, Callable[[BytesIO], Any]] = {
    ".docx": docx.Document,
    ".pptx": pptx.Presentation,
    ".xlsx": partial(openpyxl.load_workbook, rich_text=True),
}
OFFICE_SUFFIXES = (*OFFICE, ".odt", ".ods", ".odp")
ARCHIVES = (*OFFICE_SUFFIXES, ".epub")
XML_MEMBERS = (".xml", ".rels", ".opf", ".ncx", ".xhtml")
NAMED_ENTITY = re.compile(rb"&(?!amp;|lt;|gt;|quot;|apos;)\w+;")  # of HTML, unknown to XML without its document type
FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?\n)(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
RUNS = ("r", "t", "span", "proofErr", "lastRenderedPageBreak", "s", "tab", "line-break")
DIRECTION = ("pPr", "tblPr", "bidi", "bidiVisual", "rtl")  # marks of right-to-left text
RUN_FORMATS = ("rPr", "endParaRPr", "automatic-styles")
RST_INLINE = (
    "emphasis", "strong", "literal", "reference", "footnote_reference", "citation_reference",
    "substitution_reference", "title_reference", "image", "math", "inline", "problematic",
)  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """What a reader finds in a file."""

    structure: Any = None  # equal before and after translation
    problems: int = 0  # not more after translation


def read_archive(suffix: str, data: bytes) -> Reading:
    """Office documents and e-books: the usual library opens the file, every member is XML, and its elements."""
    if open_office := OFFICE.get(suffix):
        open_office(BytesIO(data))
    elements = Counter[str]()
    with ZipFile(BytesIO(data)) as archive:
        for member in archive.namelist():
            if member.endswith(XML_MEMBERS):
                elements += _elements(ElementTree.fromstring(NAMED_ENTITY.sub(b"", archive.read(member))))
    return Reading(elements)


def _elements(element: ElementTree.Element) -> Counter[str]:
    """The names of elements, without runs and their formats, which may be split and merged, and marks of direction."""
    name = element.tag.rpartition("}")[2]
    if name in RUN_FORMATS:
        return Counter()
    inner = (_elements(child) for child in element)
    return sum(inner, Counter[str]() if name in (*RUNS, *DIRECTION) else Counter([name]))


def read_xml(data: bytes) -> Reading:
    """Well-formed."""
    ElementTree.fromstring(data)
    return Reading()


def read_xhtml(data: bytes) -> Reading:
    """Well-formed, with as many elements of each name."""
    root = ElementTree.fromstring(NAMED_ENTITY.sub(b"", data))
    return Reading(Counter(element.tag.rpartition("}")[2] for element in root.iter()))


def read_html(data: bytes) -> Reading:
    """As many elements of each name, by lxml; problems are its errors but unknown elements."""
    from lxml import etree

    parser = etree.HTMLParser()
    root = etree.fromstring(data, parser)
    errors = [one for one in parser.error_log if not re.match("Tag .* invalid", one.message)]
    return Reading(Counter(str(element.tag) for element in root.iter(etree.Element)), len(errors))


def read_po(data: bytes) -> Reading:
    """`msgfmt --check`, also of fuzzy entries, and the keys that polib reads."""
    import polib

    entries = polib.pofile(data.decode("utf-8"), check_for_duplicates=False)
    keys = [(entry.msgctxt, entry.msgid, entry.msgid_plural, tuple(entry.comment)) for entry in entries]
    if not shutil.which("msgfmt"):
        return Reading(keys)
    done = subprocess.run(["msgfmt", "--check", "--use-fuzzy", "-o", "/dev/null", "-"], input=data, capture_output=True)
    problems = [line for line in done.stderr.decode(errors="replace").splitlines() if re.match(r".*:\d+: ", line)]
    return Reading(keys, len(problems) if done.returncode else 0)


def read_markdown(data: bytes) -> Reading:
    """The front matter as YAML, and the number of blocks and inline elements of each kind."""
    from markdown_it import MarkdownIt

    text = data.decode("utf-8-sig").replace("\r\n", "\n")
    if front := FRONT_MATTER.match(text):
        yaml.safe_load(front[1])
        text = text[front.end() :]
    tokens = MarkdownIt().enable(["table", "strikethrough"]).parse(text)
    inline = (child.tag for token in tokens for child in token.children or () if child.nesting >= 0)
    blocks = (f"block {token.tag}" for token in tokens if token.tag and token.nesting >= 0)
    return Reading(Counter(tag for tag in (*inline, *blocks) if tag not in ("", "br", "block hr")))


def read_rst(data: bytes) -> Reading:
    """The number of inline elements of each kind; problems are messages from level 2 on, with references of Sphinx."""
    from docutils import nodes
    from docutils.core import publish_doctree

    settings = {"report_level": 5, "halt_level": 6, "file_insertion_enabled": False, "raw_enabled": False}
    tree = publish_doctree(data.decode("utf-8-sig"), settings_overrides=settings)
    messages = [one for one in tree.findall(nodes.system_message) if one["level"] >= 2]
    inline = Counter(name for node in tree.findall() if (name := type(node).__name__) in RST_INLINE)
    return Reading(inline, len(messages))


def read_properties(data: bytes) -> Reading:
    """The keys, by javaproperties."""
    import javaproperties

    encoding = "utf-8" if _decodes(data) else "iso-8859-1"
    return Reading([key for key, _, _ in javaproperties.parse(data.decode(encoding)) if key is not None])


def read_strings(data: bytes) -> Reading:
    """The keys, by openstep-plist."""
    import openstep_plist

    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    return Reading(list(openstep_plist.loads(data.decode(encoding))))


def read_stringsdict(data: bytes) -> Reading:
    """A property list."""
    plistlib.loads(data)
    return Reading()


def read_fluent(data: bytes) -> Reading:
    """The number of messages and terms; problems are junk entries."""
    from fluent.syntax import FluentParser, ast

    body = FluentParser().parse(data.decode("utf-8-sig")).body
    junk = sum(isinstance(entry, ast.Junk) for entry in body)
    return Reading(sum(isinstance(entry, (ast.Message, ast.Term)) for entry in body), junk)


def read_srt(data: bytes) -> Reading:
    """The times, by pysubs2."""
    import pysubs2

    cues = pysubs2.SSAFile.from_string(data.decode("utf-8-sig"), format_="srt")
    return Reading([(cue.start, cue.end) for cue in cues])


def read_vtt(data: bytes) -> Reading:
    """The times, by webvtt."""
    import webvtt

    return Reading([(cue.start, cue.end) for cue in webvtt.from_buffer(io.StringIO(data.decode("utf-8-sig")))])


def read_csv(data: bytes) -> Reading:
    """The number of cells in each row."""
    text = data.decode("utf-8-sig")
    return Reading([len(row) for row in csv.reader(io.StringIO(text, newline=""), csv.Sniffer().sniff(text[:5000]))])


def read_json(data: bytes) -> Reading:
    """JSON."""
    json.loads(data)
    return Reading()


def read_yaml(data: bytes) -> Reading:
    """YAML."""
    yaml.safe_load(data)
    return Reading()


READERS: dict[str, Callable[[bytes], Reading]] = {
    **dict.fromkeys((".po", ".pot"), read_po),
    **dict.fromkeys((".json", ".arb", ".xcstrings"), read_json),
    **dict.fromkeys((".yml", ".yaml"), read_yaml),
    **dict.fromkeys((".xml", ".xlf", ".xliff", ".sdlxliff", ".mqxliff", ".tmx", ".resx", ".resw", ".ts"), read_xml),
    **dict.fromkeys((".html", ".htm"), read_html),
    **dict.fromkeys((".md", ".markdown"), read_markdown),
    **dict.fromkeys((".rst", ".rest"), read_rst),
    **{suffix: partial(read_archive, suffix) for suffix in ARCHIVES},
    ".xhtml": read_xhtml,
    ".properties": read_properties,
    ".strings": read_strings,
    ".stringsdict": read_stringsdict,
    ".ftl": read_fluent,
    ".srt": read_srt,
    ".vtt": read_vtt,
    ".csv": read_csv,
}
TEXT_FORMATS = (".md", ".markdown", ".rst", ".rest")
PACKAGES = {  # modules of the readers that are not in every environment, or programs
    "polib": (".po", ".pot"),
    "msgfmt": (".po", ".pot"),
    "markdown_it": (".md", ".markdown"),
    "docutils": (".rst", ".rest"),
    "javaproperties": (".properties",),
    "openstep_plist": (".strings",),
    "fluent": (".ftl",),
    "pysubs2": (".srt",),
    "webvtt": (".vtt",),
    "lxml": (".html", ".htm"),
}


@cache
def missing_readers() -> tuple[str, ...]:
    """The packages and programs that are not installed."""
    return tuple(name for name in PACKAGES if not importlib.util.find_spec(name) and not shutil.which(name))


def reading_of(name: str, data: bytes) -> Reading | str:
    """What another reader finds in a file, or why it cannot read it; an empty reading if there is none."""
    suffix = Path(name).suffix.lower()
    try:
        return READERS.get(suffix, lambda data: Reading())(data)
    except ModuleNotFoundError:
        return Reading()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def reading_of_text(name: str, text: str) -> Reading | str:
    """The same for one text in a format that a reader also reads without its file; an empty reading for others."""
    return reading_of(name, text.encode()) if Path(name).suffix.lower() in TEXT_FORMATS else Reading()


def faults(before: Reading | str, after: Reading | str) -> Iterator[tuple[str, str]]:
    """What is wrong with a translated file, as kind and description; nothing if its original cannot be read either.

    >>> list(faults(Reading(["a", "b"], 1), Reading(["a"], 2)))
    [('invalid', '2 problems, not 1'), ('codes', '1 items, not 2')]
    >>> list(faults("ParseError", "ParseError")), list(faults(Reading(), "ParseError"))
    ([], [('invalid', 'ParseError')])
    """
    if isinstance(before, str):
        return
    if isinstance(after, str):
        yield "invalid", after
        return
    if after.problems > before.problems:
        yield "invalid", f"{after.problems} problems, not {before.problems}"
    if before.structure != after.structure:
        yield "codes", _difference(before.structure, after.structure)


def _difference(before: Any, after: Any) -> str:
    """Two structures, without what they share."""
    if isinstance(before, Counter) and isinstance(after, Counter):
        return f"lost {dict(before - after)}, added {dict(after - before)}"
    if isinstance(before, (list, tuple)) and isinstance(after, (list, tuple)):
        first = next((n for n, (one, other) in enumerate(zip(before, after, strict=False)) if one != other), None)
        if first is None:
            return f"{len(after)} items, not {len(before)}"
        if isinstance(before[first], (list, tuple)):
            return f"at {first}: {_difference(before[first], after[first])}"
        return f"at {first}: {after[first]!r}, not {before[first]!r}"
    return f"{after!r}, not {before!r}"


def _decodes(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True

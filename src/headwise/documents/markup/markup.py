"""XML with byte positions: a tree of elements that knows where each element is in the file, for exact edits.

External document types are not read, and entity declarations are rejected: they allow exponential expansion and reading
of other files (the attacks listed at https://pypi.org/project/defusedxml). See `tmx.py` and `xliff.py` for the meaning
of elements.
"""

import codecs
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from xml.parsers import expat

from headwise.documents.formats.encodings import decode_file
from headwise.documents.unit import Code, Parts, join_parts, plain, unescape_html
from headwise.errors import UserError

START_TAG = re.compile(rb"<(?:[^>\"']|\"[^\"]*\"|'[^']*')*>")
END_TAG = re.compile(rb"</[^>]*>")
TOKEN = re.compile(r"<!\[CDATA\[(.*?)\]\]>|<!--.*?-->|<\?.*?\?>|([^<]+)", re.DOTALL)
BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # which XML cannot express
DECLARED_ENCODING = re.compile(rb"<\?xml[^>]*?\bencoding\s*=\s*[\"']([\w.:-]+)")
MAX_DEPTH = 500  # nested elements


@dataclass(eq=False)
class Element:
    """An element and its byte span, `start` to `end`; its content is `inner` to `inner_end`."""

    name: str  # without its namespace prefix
    attributes: Mapping[str, str]
    line: int
    start: int
    inner: int
    inner_end: int = 0
    end: int = 0
    children: "list[Element]" = field(default_factory=list)

    def child(self, name: str) -> "Element | None":
        """The first child of this name."""
        return next((child for child in self.children if child.name == name), None)

    def every(self, *names: str) -> "Iterator[Element]":
        """All descendants with these names, in document order."""
        for child in self.children:
            if child.name in names:
                yield child
            yield from child.every(*names)


class Source:
    """The content of a file as UTF-8, with its original encoding."""

    def __init__(self, path: str, data: bytes) -> None:
        """Raises `UserError` for invalid bytes in the declared encoding, or malformed XML."""
        self.path = path
        self._mark, self._encoding = next(((m, e) for m, e in BOMS if data.startswith(m)), (b"", ""))
        declared = DECLARED_ENCODING.match(data)
        self._encoding = self._encoding or (declared[1].decode() if declared else "utf-8")
        try:
            self.data = decode_file(data[len(self._mark) :], self._encoding).encode()
        except (LookupError, UnicodeDecodeError) as error:
            why = f"not valid in its declared encoding {self._encoding} ({error})"
            raise UserError(f"{path}: {why}; convert the file") from error
        self.root = _TreeBuilder(path).read(self.data)

    def check_root(self, name: str, kind: str) -> None:
        """`UserError` if the root element is another one, so that the file is not of this kind."""
        if self.root.name != name:
            where = f"{self.path}: line {self.root.line}"
            raise UserError(f"{where}: not {kind}: the root element is <{self.root.name}>, not <{name}>")

    def text(self, start: int, end: int) -> str:
        """The text of a byte span."""
        return self.data[start:end].decode()

    @cached_property
    def prefix(self) -> str:
        """The namespace prefix of the format with its colon, from the root element."""
        name = self.text(self.root.start, self.root.inner)[1:].split()[0].rstrip("/>")
        return name.rpartition(":")[0] + ":" if ":" in name else ""

    def edited(self, edits: Iterable[tuple[int, int, str]]) -> bytes:
        """The file with non-overlapping byte spans replaced by texts, in its own encoding."""
        pieces, at = [], 0
        for start, end, text in sorted(edits):
            pieces += [self.data[at:start], text.encode()]
            at = end
        whole = b"".join([*pieces, self.data[at:]])
        if self._encoding.lower().replace("_", "-") in ("utf-8", "utf8"):
            return self._mark + whole
        return self._mark + whole.decode().encode(self._encoding, errors="xmlcharrefreplace")

    def parts(self, element: Element, paired: Callable[[Element], bool]) -> Parts:
        """The content of an element: strings, and a code for each child element.

        For a `paired` child only the two tags are codes; its content is text.
        """
        return join_parts(list(self._parts(element, paired)))

    def _parts(self, element: Element, paired: Callable[[Element], bool]) -> Iterator[str | Code]:
        at = element.inner
        for child in element.children:
            yield _unescaped_text(self.text(at, child.start))
            if paired(child):
                yield Code(self.text(child.start, child.inner), inline=True)
                yield from self._parts(child, paired)
                yield Code(self.text(child.inner_end, child.end), inline=True)
            else:
                yield Code(self.text(child.start, child.end), inline=True)
            at = child.end
        yield _unescaped_text(self.text(at, element.inner_end))

    def indentation(self, element: Element) -> str:
        """The newline and blanks before an element, to insert a sibling."""
        at = element.start
        while self.data[at - 1 : at] in (b" ", b"\t"):
            at -= 1
        line_end = next((end for end in (b"\r\n", b"\n") if self.data.endswith(end, 0, at)), b"")
        return (line_end + self.data[at : element.start]).decode() if line_end else ""


class _TreeBuilder:
    """Builds the tree from expat's events."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._data = b""
        self._open: list[Element] = []
        self._root: Element | None = None
        self._parser = expat.ParserCreate("utf-8")
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.EntityDeclHandler = self._reject_entity

    def read(self, data: bytes) -> Element:
        """The root element; `UserError` for malformed XML."""
        self._data = data
        try:
            self._parser.Parse(data, True)
        except expat.ExpatError as error:
            what = expat.ErrorString(error.code)
            raise UserError(
                f"{self._path}: line {error.lineno}: invalid XML ({what}); correct it or export the file again"
            ) from error
        assert self._root is not None
        return self._root

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        at = self._parser.CurrentByteIndex
        tag = START_TAG.match(self._data, at)
        assert tag is not None
        local = name.rpartition(":")[2]
        element = Element(local, attributes, self._parser.CurrentLineNumber, at, tag.end(), tag.end(), tag.end())
        if len(self._open) >= MAX_DEPTH:
            raise UserError(
                f"{self._path}: line {element.line}: more than {MAX_DEPTH} nested elements; simplify the file"
            )
        if self._open:
            self._open[-1].children.append(element)
        else:
            self._root = element
        self._open.append(element)

    def _end(self, name: str) -> None:
        element, at = self._open.pop(), self._parser.CurrentByteIndex
        if self._data[element.start : element.inner].endswith(b"/>"):
            return  # an empty element has no end tag
        tag = END_TAG.match(self._data, at)
        assert tag is not None
        element.inner_end, element.end = at, tag.end()

    def _reject_entity(self, name: str, *_: object) -> None:
        line = self._parser.CurrentLineNumber
        raise UserError(
            f"{self._path}: line {line}: entity declarations are not supported; replace '{name}' by its text"
        )


def _unescaped_text(raw: str) -> str:
    """The text of a span without elements: entities resolved, comments removed."""
    if "<" not in raw:
        return unescape_html(raw) if "&" in raw else raw
    return "".join(m[1] if m[1] is not None else unescape_html(m[2] or "") for m in TOKEN.finditer(raw))


def to_xml(parts: Parts) -> str:
    r"""Parts as the content of an XML element, without control characters.

    >>> to_xml(("a < b\x01", Code("<x/>", inline=True)))
    'a &lt; b<x/>'
    """
    return "".join(
        part.text if isinstance(part, Code) and part.inline else escape(CONTROLS.sub("", plain((part,))), quote=False)
        for part in parts
    )


def with_attributes(tag: str, **values: str) -> str:
    """A start tag with these attributes set.

    >>> with_attributes('<target state="new">', state="final", lang="de")
    '<target state="final" lang="de">'
    """
    for name, value in values.items():
        quoted = escape(value, quote=False).replace('"', "&quot;")
        attribute = f'{name}="{quoted}"'
        there = re.search(rf"(?<=\s){re.escape(name)}\s*=\s*(\"[^\"]*\"|'[^']*')", tag)
        behind = len(tag) - (2 if tag.endswith("/>") else 1)
        start, end = there.span() if there else (behind, behind)
        tag = tag[:start].rstrip() + " " + attribute + tag[end:]
    return tag

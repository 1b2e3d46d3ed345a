"""XML whose bytes can be kept: a tree of elements that knows where each of them stands in the file.

A document type may name a file elsewhere, which is not read; entities of a file's own are refused, so that none can
grow without end or read what is not the file's (the attacks that https://pypi.org/project/defusedxml lists). Not here:
what elements mean (`tmx.py`, `xliff.py`).
"""

import codecs
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from xml.parsers import expat

from sightline.errors import UserError
from sightline.localisation.encodings import decoded
from sightline.localisation.unit import Code, Parts, joined, plain, unescaped

START_TAG = re.compile(rb"<(?:[^>\"']|\"[^\"]*\"|'[^']*')*>")
END_TAG = re.compile(rb"</[^>]*>")
TOKEN = re.compile(r"<!\[CDATA\[(.*?)\]\]>|<!--.*?-->|<\?.*?\?>|([^<]+)", re.DOTALL)
MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
DECLARED = re.compile(rb"<\?xml[^>]*?\bencoding\s*=\s*[\"']([\w.:-]+)")
DEEPEST = 500  # elements inside each other


@dataclass(eq=False)
class Element:
    """An element and the bytes it takes: `start` to `end`, its content `inner` to `inner_end`."""

    name: str  # without the prefix of its namespace
    attributes: Mapping[str, str]
    line: int
    start: int
    inner: int
    inner_end: int = 0
    end: int = 0
    children: "list[Element]" = field(default_factory=list)

    def child(self, name: str) -> "Element | None":
        """The first of its children with that name."""
        return next((child for child in self.children if child.name == name), None)

    def every(self, *names: str) -> "Iterator[Element]":
        """All elements of these names inside it, in order."""
        for child in self.children:
            if child.name in names:
                yield child
            yield from child.every(*names)


class Source:
    """The bytes of a file, as UTF-8, and how they were written."""

    def __init__(self, path: str, data: bytes) -> None:
        """Raises a `UserError` for bytes that are not in the file's encoding, or no XML."""
        self.path = path
        self._mark, self._encoding = next(((m, e) for m, e in MARKS if data.startswith(m)), (b"", ""))
        declared = DECLARED.match(data)
        self._encoding = self._encoding or (declared[1].decode() if declared else "utf-8")
        try:
            self.data = decoded(data[len(self._mark) :], self._encoding).encode()
        except (LookupError, UnicodeDecodeError) as error:
            raise UserError(f"{path}: is not in the encoding that it names, {self._encoding} ({error})") from error
        self.root = _Reader(path).read(self.data)

    def text(self, start: int, end: int) -> str:
        """The characters of a stretch of bytes."""
        return self.data[start:end].decode()

    @cached_property
    def prefix(self) -> str:
        """Of the names of the format, with its colon: that of the first tag."""
        name = self.text(self.root.start, self.root.inner)[1:].split()[0].rstrip("/>")
        return name.rpartition(":")[0] + ":" if ":" in name else ""

    def edited(self, edits: Iterable[tuple[int, int, str]]) -> bytes:
        """The file with stretches of bytes, none of which overlap, replaced by texts; in its own encoding."""
        pieces, at = [], 0
        for start, end, text in sorted(edits):
            pieces += [self.data[at:start], text.encode()]
            at = end
        whole = b"".join([*pieces, self.data[at:]])
        if self._encoding.lower().replace("_", "-") in ("utf-8", "utf8"):
            return self._mark + whole
        return self._mark + whole.decode().encode(self._encoding, errors="xmlcharrefreplace")

    def parts(self, element: Element, paired: Callable[[Element], bool]) -> Parts:
        """What is in an element: strings, and codes for the elements in it.

        Of a `paired` one only its two tags are codes, and what is between them is text.
        """
        return joined(list(self._parts(element, paired)))

    def _parts(self, element: Element, paired: Callable[[Element], bool]) -> Iterator[str | Code]:
        at = element.inner
        for child in element.children:
            yield _characters(self.text(at, child.start))
            if paired(child):
                yield Code(self.text(child.start, child.inner), inline=True)
                yield from self._parts(child, paired)
                yield Code(self.text(child.inner_end, child.end), inline=True)
            else:
                yield Code(self.text(child.start, child.end), inline=True)
            at = child.end
        yield _characters(self.text(at, element.inner_end))

    def indentation(self, element: Element) -> str:
        """The line end and blanks before an element, to put another behind it."""
        at = element.start
        while self.data[at - 1 : at] in (b" ", b"\t"):
            at -= 1
        line_end = next((end for end in (b"\r\n", b"\n") if self.data.endswith(end, 0, at)), b"")
        return (line_end + self.data[at : element.start]).decode() if line_end else ""


class _Reader:
    """Makes the tree while expat goes through the bytes."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._data = b""
        self._open: list[Element] = []
        self._root: Element | None = None
        self._parser = expat.ParserCreate("utf-8")
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._stop
        self._parser.EntityDeclHandler = self._refuse

    def read(self, data: bytes) -> Element:
        """The tree; `UserError` where the file is not well-formed."""
        self._data = data
        try:
            self._parser.Parse(data, True)
        except expat.ExpatError as error:
            what = expat.ErrorString(error.code)
            raise UserError(
                f"{self._path}: line {error.lineno}: is no XML ({what}); mend it or export it again"
            ) from error
        assert self._root is not None
        return self._root

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        at = self._parser.CurrentByteIndex
        tag = START_TAG.match(self._data, at)
        assert tag is not None
        local = name.rpartition(":")[2]
        element = Element(local, attributes, self._parser.CurrentLineNumber, at, tag.end(), tag.end(), tag.end())
        if len(self._open) >= DEEPEST:
            raise UserError(
                f"{self._path}: line {element.line}: has {DEEPEST} elements inside each other; it is refused"
            )
        if self._open:
            self._open[-1].children.append(element)
        else:
            self._root = element
        self._open.append(element)

    def _stop(self, name: str) -> None:
        element, at = self._open.pop(), self._parser.CurrentByteIndex
        if self._data[element.start : element.inner].endswith(b"/>"):
            return  # it has no end tag, and is where it began
        tag = END_TAG.match(self._data, at)
        assert tag is not None
        element.inner_end, element.end = at, tag.end()

    def _refuse(self, name: str, *_: object) -> None:
        line = self._parser.CurrentLineNumber
        raise UserError(
            f"{self._path}: line {line}: declares the entity '{name}', which is refused; write out its text"
        )


def _characters(raw: str) -> str:
    """The text of a stretch without elements: entities resolved, comments left out."""
    if "<" not in raw:
        return unescaped(raw) if "&" in raw else raw
    return "".join(m[1] if m[1] is not None else unescaped(m[2] or "") for m in TOKEN.finditer(raw))


def written(parts: Parts) -> str:
    """Parts as the content of an element."""
    return "".join(
        part.text if isinstance(part, Code) and part.inline else escape(plain((part,)), quote=False) for part in parts
    )


def with_attributes(tag: str, **values: str) -> str:
    """A start tag in which these attributes have these values.

    >>> with_attributes('<target state="new">', state="final", lang="de")
    '<target state="final" lang="de">'
    """
    for name, value in values.items():
        quoted = escape(value, quote=False).replace('"', "&quot;")
        said = f'{name}="{quoted}"'
        there = re.search(rf"(?<=\s){re.escape(name)}\s*=\s*(\"[^\"]*\"|'[^']*')", tag)
        behind = len(tag) - (2 if tag.endswith("/>") else 1)
        start, end = there.span() if there else (behind, behind)
        tag = tag[:start].rstrip() + " " + said + tag[end:]
    return tag


def same_language(code: str, wanted: str) -> bool:
    """Whether a language code is the wanted one, or one of its regions.

    >>> same_language("en-US", "en"), same_language("EN", "en_GB"), same_language("pt_BR", "pt-PT")
    (True, True, False)
    """
    one, other = code.lower().replace("_", "-"), wanted.lower().replace("_", "-")
    short, long = sorted((one, other), key=len)
    return long == short or long.startswith(short + "-")

r"""Android resources (`strings.xml`): https://developer.android.com/guide/topics/resources/string-resource.

A unit is a `string`, or an `item` of a `string-array` or of `plurals`; plurals get the categories of the target
language. Apostrophes, quotes and newlines are escaped (`\'`). Tags and `xliff:g` are codes. Resources with
`translatable="false"`, references (`@string/name`) and other elements stay.
Deviation: bare quotes in CDATA are part of its HTML, and are written back bare; aapt2 drops them.
"""

import re
from collections.abc import Iterator, Sequence

from headwise.documents.formats.plurals import missing_categories
from headwise.documents.formats.xml_texts import ElementText, XmlTexts
from headwise.documents.markup.markup import CONTROLS, Element, Source, to_xml
from headwise.documents.unit import Code, Parts, Skipped, join_parts, plain
from headwise.errors import UserError

TOKEN = re.compile(r"\\u[0-9a-fA-F]{4}|\\.|\"|\s+|[^\\\"\s]+|\\$", re.DOTALL)
MEANINGS = {"n": "\n", "t": "\t"}
CDATA = "<![CDATA["
TAG = re.compile(r"(<[^<>]*>)")  # of HTML in CDATA
REFERENCE = re.compile(r"[@?](?:\+|\*)?(?:[\w.]++:)?\w++/[\w.]++")
KINDS = ("string", "string-array", "plurals")


def read_android(path: str, data: bytes, languages: Sequence[str]) -> XmlTexts:
    """Read Android resources; without a target language plurals keep their categories."""
    source = Source(path, data)
    if source.root.name != "resources":
        where = f"{path}: line {source.root.line}"
        raise UserError(f"{where}: not Android resources but <{source.root.name}>; --lines translates XML line by line")
    others = [
        Skipped(f"<{element.name}>", element.line, element.attributes.get("name", ""))
        for element in source.root.children
        if element.name not in KINDS and any(part.strip() for part in _strings(source, element))
    ]
    return XmlTexts(source, _texts(source, languages[1]), others)


def _texts(source: Source, language: str) -> Iterator[ElementText]:
    for element in source.root.children:
        if element.name not in KINDS:
            continue
        key = element.attributes.get("name", "")
        kept = 'translatable="false"' if element.attributes.get("translatable") == "false" else ""
        items = [child for child in element.children if child.name == "item"]
        for item in [element] if element.name == "string" else items:
            yield _text(source, item, key, kept)
        if element.name == "plurals" and not kept and items:
            yield from _missing(source, items, key, language)


def _text(source: Source, element: Element, key: str, kept: str) -> ElementText:
    raw = source.text(element.inner, element.inner_end)
    kept = "reference" if REFERENCE.fullmatch(raw.strip()) else kept
    quantity = element.attributes.get("quantity", "")
    content = _content(source, element)
    return ElementText.of(
        element, content, lambda parts: _to_file(parts, raw), f"{key}/{quantity}" if quantity else key, kept
    )


def _missing(source: Source, items: Sequence[Element], key: str, language: str) -> Iterator[ElementText]:
    """New items for the categories that the target language has and the source language has not."""
    by_quantity = {item.attributes.get("quantity", ""): item for item in items}
    for name in missing_categories(list(by_quantity), language):
        other, last = by_quantity["other"], items[-1]
        tag = re.sub(r"(quantity\s*=\s*[\"'])other", rf"\g<1>{name}", source.text(other.start, other.inner))
        before, after = source.indentation(last) + tag, source.text(other.inner_end, other.end)
        raw = source.text(other.inner, other.inner_end)
        yield ElementText(
            last.end,
            last.end,
            last.line,
            _content(source, other),
            lambda parts, before=before, after=after, raw=raw: before + _to_file(parts, raw) + after,
            f"{key}/{name}",
        )


def _strings(source: Source, element: Element) -> list[str]:
    return [part for part in source.parts(element, lambda e: True) if isinstance(part, str)]


def _content(source: Source, element: Element) -> Parts:
    """The text of a resource. Blanks are collapsed as Android does, unless they are in quotes."""
    parts = list(source.parts(element, lambda child: child.name != "g"))
    if parts and isinstance(parts[0], str):
        parts[0] = parts[0].lstrip()
    if parts and isinstance(parts[-1], str) and not parts[-1].endswith("\\ "):
        parts[-1] = parts[-1].rstrip()
    literal = CDATA in source.text(element.inner, element.inner_end)
    return join_parts([part if isinstance(part, Code) else _unescape(part, literal) for part in parts])


def _unescape(raw: str, literal: bool = False) -> str:
    r"""Resolve escapes, and collapse blanks outside quotes; with `literal`, quotes are part of the text.

    >>> _unescape(r'It\'s  "two  blanks"\n\u00e9 \@')
    "It's two  blanks\né @"
    """
    found, quoted = list[str](), False
    for token in TOKEN.finditer(raw):
        text = token[0]
        if text == '"' and not literal:
            quoted = not quoted
        elif text.startswith("\\"):
            found.append(_character(text))
        else:
            found.append(" " if text.isspace() and not quoted else text)
    return "".join(found)


def _character(escape: str) -> str:
    if len(escape) == 6:
        return chr(int(escape[2:], 16))
    return MEANINGS.get(escape[1:], escape[1:])


def _to_file(parts: Parts, raw: str) -> str:
    """A translation as the content of a resource; it is in quotes or in CDATA if its source `raw` was."""
    quoted = re.fullmatch(r'\s*"(?:[^"\\]|\\.)*+"\s*', raw, re.DOTALL) is not None
    bare = _bare_marks(raw)
    escaped = [
        part if isinstance(part, Code) and part.inline else _escaped(plain((part,)), quoted, bare) for part in parts
    ]
    for end, pattern in ((0, "^ "), (-1, " $")) if escaped and not quoted else ():
        outer = escaped[end]
        escaped[end] = re.sub(pattern, r"\\u0020", outer) if isinstance(outer, str) else outer
    text = plain(tuple(escaped))
    cdata = raw.lstrip().startswith(CDATA) and "]]>" not in text and all(isinstance(p, str) for p in escaped)
    before, after = _blanks(raw)
    content = f"<![CDATA[{CONTROLS.sub('', text)}]]>" if cdata else to_xml(tuple(escaped))
    content = f'"{content}"' if quoted else content
    if re.match(r"[@?]", content):
        content = "\\" + content
    return before + content + after


def _blanks(raw: str) -> tuple[str, str]:
    """The blanks around a content, which Android ignores."""
    body = raw.strip()
    at = raw.find(body) if body else 0
    return raw[:at], raw[at + len(body) :]


def _bare_marks(raw: str) -> tuple[str, str]:
    """The quotes and apostrophes that a content with CDATA has without a backslash: outside its tags, and inside."""
    pieces = TAG.split(re.sub(r"<!\[CDATA\[|\]\]>", "", raw)) if CDATA in raw else []
    outside, inside = (re.sub(r"\\.", "", "".join(pieces[first::2])) for first in (0, 1))
    return "".join(m for m in "\"'" if m in outside), "".join(m for m in "\"'" if m in inside)


def _escaped(text: str, quoted: bool, bare: tuple[str, str]) -> str:
    """`_escape`, except for the marks that are bare in the source."""
    if not any(bare):
        return _escape(text, quoted)
    pieces = [_escape(piece, quoted) for piece in TAG.split(text)]
    return "".join(re.sub(rf"\\([{bare[i % 2]}])", r"\1", one) if bare[i % 2] else one for i, one in enumerate(pieces))


def _escape(text: str, quoted: bool) -> str:
    r"""Escape a text.

    >>> _escape("l'eau \"x\"\n", False)
    'l\\\'eau \\"x\\"\\n'
    """
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    text = text if quoted else text.replace("'", "\\'")
    text = text if quoted else re.sub(r" (?= )", r"\\u0020", text)
    return re.sub(r"[\u00a0\u200b\u2009]", lambda found: f"\\u{ord(found[0]):04x}", text)

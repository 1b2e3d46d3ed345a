"""A page as a sequence of tags, comments and texts with positions, parsed as browsers do (https://html.spec.whatwg.org).

`turbohtml` builds the tree and reports where each tag is; this module puts tags and texts back in the order of the
file. An element without an end tag ends where the next tag outside of it begins. In XHTML (`.xhtml`, or an XML
declaration) `<a/>` is an empty element, and the content of a CDATA section is not markup. See `html_page.py` for the
text to translate.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headwise.errors import UserError

RAW = ("script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes", "plaintext")  # no tags inside
EMPTY_RAW = re.compile(
    rf"<(?=(?:{'|'.join(RAW)})[\s/])(\w+(?:[^<>\"'/]|/(?!>)|\"[^\"<]*\"|'[^'<]*')*+/>)", re.IGNORECASE
)
FIRST_TAG = re.compile(r"\s*<(\w+)")
CONTEXTS = {  # of a text that is part of a table, by its first tag
    **dict.fromkeys(("td", "th"), "tr"),
    **dict.fromkeys(("thead", "tbody", "tfoot", "caption"), "table"),
    "tr": "tbody",
}
Offsets = tuple[int, int]  # start and end


@dataclass(frozen=True)
class PagePiece:
    """A span of a page: a tag, a text, or other markup, which browsers do not show."""

    start: int
    end: int
    name: str  # of the tag, in lower case; else ""
    kind: str  # "text", "open", "close", "empty" (XHTML), or "other"
    attributes: Mapping[str, Offsets] = field(default_factory=dict)  # values, with their quotes
    element: Offsets = (0, 0)  # numbers of the element and of its last descendant


def page_pieces(path: str, text: str) -> list[PagePiece]:
    """The spans that make up a page when joined, in linear time."""
    try:
        from turbohtml import parse, parse_fragment
    except ImportError:
        raise UserError(f'{path}: reading HTML needs turbohtml: pip install "headwise[files]"') from None
    is_xml = is_xhtml(path, text)
    parsed = _masked(text, is_xml)
    first = FIRST_TAG.match(parsed)
    context = CONTEXTS.get(first[1].lower()) if first else None
    tree = parse_fragment(parsed, context, source_locations=True) if context else parse(parsed, source_locations=True)
    found, at = list[PagePiece](), 0
    for tag in sorted(_tags(tree, is_xml, parsed), key=lambda tag: tag.start):
        if tag.start >= at:
            found += [*_between(parsed, at, tag.start, found), tag]
            at = tag.end
    return [*found, *_between(parsed, at, len(text), found)]


def element_end(pieces: Sequence[PagePiece], number: int) -> int:
    """The number of the last piece of the element whose start tag has this number."""
    first, last = pieces[number].element
    inside = number
    for at in range(number + 1, len(pieces)):
        piece = pieces[at]
        if piece.kind == "close" and piece.element[0] == first:
            return at
        if piece.element[0] and not first <= piece.element[0] <= last:
            break
        inside = at
    return inside


def is_xhtml(path: str, text: str) -> bool:
    """Whether a page follows the rules of XML."""
    return path.lower().endswith(".xhtml") or text.lstrip().startswith("<?xml")


def _masked(text: str, is_xml: bool) -> str:
    """A text of the same length that HTML rules parse as intended."""
    text = text.replace("\r\n", " \n").replace("\r", "\n").replace("</>", "<!>").replace("\ufeff", " ")
    if not is_xml:
        return text
    pieces, at = list[str](), 0
    while (start := text.find("<![CDATA[", at)) >= 0 and (end := text.find("]]>", start)) >= 0:
        pieces += [text[at:start], "<!--", "x" * (end - start - 4), "-->"]
        at = end + 3
    return EMPTY_RAW.sub(lambda found: "<x" + found[1][1:], "".join([*pieces, text[at:]]))


def _tags(document: Any, is_xml: bool, text: str) -> Iterator[PagePiece]:
    """The tags that made elements; elements are numbered in the order of the tree."""
    number = 0
    nodes: list[tuple[Any, int, Iterator[Any]]] = [(document, number, iter(document))]
    while nodes:
        node, own, children = nodes[-1]
        if (child := next(children, None)) is not None:
            number += 1
            nodes.append((child, number, iter(child)))
            continue
        nodes.pop()
        location = getattr(node, "source_location", None)
        if location is None:
            continue  # a text, or an element that has no tag
        name, (start, end) = node.tag.lower(), location.start_tag[2::3]
        kind = "empty" if is_xml and text.endswith("/>", start, end) else "open"
        values = {key: _value(text, *span[2::3]) for key, span in location.attrs.items()}
        yield PagePiece(start, end, name, kind, {key: span for key, span in values.items() if span}, (own, number))
        if location.end_tag:
            start, end = location.end_tag[2::3]
            yield PagePiece(start, end, name, "close", {}, (own, number))


def _value(text: str, start: int, end: int) -> Offsets | None:
    """The span of the value in `name="value"`, with its quotes; None without one."""
    equals = text.find("=", start + 1, end)
    return (end - len(text[equals + 1 : end].lstrip()), end) if equals >= 0 else None


def _between(text: str, start: int, end: int, before: Sequence[PagePiece]) -> Iterator[PagePiece]:
    """The texts, comments and ignored tags between two tags."""
    from turbohtml import TokenType, tokenize

    is_raw = bool(before) and before[-1].kind == "open" and before[-1].name in RAW
    if is_raw or "<" not in text[start:end]:
        if start < end:
            yield PagePiece(start, end, "", "text")
        return
    begun = at = start
    for token in tokenize(text[start:end], resolve_references=False, capture_source=True):
        if token.source is None or token.type is TokenType.CHARACTER_REFERENCE:
            at += len(token.source or token.data or "")
            continue
        if begun < at:
            yield PagePiece(begun, at, "", "text")
        begun = at + len(token.source)
        kind = {TokenType.START_TAG: "open", TokenType.END_TAG: "close"}.get(token.type, "other")
        yield PagePiece(at, begun, (token.tag or "").lower(), kind)
        at = begun
    if begun < at:
        yield PagePiece(begun, at, "", "text")
    if at < end:  # a tag without its end, which browsers drop
        yield PagePiece(at, end, "", "other")

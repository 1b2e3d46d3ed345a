"""HTML (.html, .htm, .xhtml): the text between block-level tags is a unit; other tags are inline codes.

Scripts, styles, code and preformatted text stay, as do elements with `translate="no"` or the class `notranslate`
(https://html.spec.whatwg.org/#the-translate-attribute). The attributes `alt`, `title`, `placeholder` and `aria-label`
are units. Whitespace in a translated text collapses to one blank, as in a browser.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from headwise.localisation.passages import Characters, Passages, TextPassage
from headwise.localisation.unit import Code, Parts, join_parts, plain, unescape_html

CHARSET = re.compile(rb"<meta[^>]*\bcharset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
MARKUP = re.compile(r"<(?:/?([a-zA-Z][a-zA-Z0-9:-]*)|[!?])")
WHOLE = ("script", "style", "code", "pre", "textarea")  # up to the first end tag
CLOSED_BY = {name: re.compile(rf"</{name}\s*>", re.IGNORECASE) for name in WHOLE}
ATTRIBUTE = re.compile(r"([^\s\"'<>/=]+)(?:\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s\"'>]+))?")
TEXTS = ("alt", "title", "placeholder", "aria-label")
KEPT = ("kbd", "samp", "var", "math", "svg")
VOID = ("img", "input", "wbr", "")  # the last one is a comment
INLINE = {
    *("a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font", "i", "ins"),
    *("mark", "nobr", "q", "s", "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u", *KEPT, *VOID),
}
BLANKS = re.compile(r"[ \t\r\n\f]+")


@dataclass(frozen=True)
class Markup:
    """A span of a page: a tag, a comment, an element that stays whole, or text between them."""

    start: int
    end: int
    name: str  # of the tag, in lower case; else ""
    kind: str  # "text", "open", "close", or "whole"


def read_html(path: str, data: bytes, languages: Sequence[str]) -> Passages:
    """Read a page in its declared encoding, else UTF-8; `languages` are ignored."""
    named = CHARSET.search(data[:2048])
    return parse_html(Characters(path, data, (named[1].decode(), "utf-8") if named else ("utf-8",)))


def parse_html(characters: Characters) -> Passages:
    """The document of a page, whatever encoding it declares."""
    return Passages(characters, _passages(characters.text))


def _passages(text: str) -> Iterator[TextPassage]:
    pieces = list(_pieces(text))
    closed = _closed(pieces)
    run: list[Markup] = []
    number = 0
    while number < len(pieces):
        piece = pieces[number]
        attributes = _attributes(text, piece) if piece.kind == "open" else {}
        if piece.name in KEPT or _is_kept(text, attributes):
            number = closed.get(number, number)
            piece = Markup(piece.start, pieces[number].end, piece.name, "whole")
        elif attributes:
            yield from _attribute_passages(text, attributes)
        if piece.kind == "text" or piece.name in INLINE:
            run.append(piece)
        else:
            yield from _run_passages(text, run)
            run = []
        number += 1
    yield from _run_passages(text, run)


# --- tags


def _pieces(text: str) -> Iterator[Markup]:
    """Spans that make up the page when joined, found in linear time."""
    start = place = 0
    while (place := text.find("<", place)) >= 0:
        end, found = _markup_end(text, place), MARKUP.match(text, place)
        if end < 0:  # an unclosed tag: the rest is text
            break
        if end == 0:  # not a tag
            place += 1
            continue
        if start < place:
            yield Markup(start, place, "", "text")
        name = (found[1] or "").lower() if found else ""
        closes = text.startswith("</", place)
        is_whole = not name or (name in WHOLE and not closes)
        yield Markup(place, end, name, "whole" if is_whole else "close" if closes else "open")
        start = place = end
    if start < len(text):
        yield Markup(start, len(text), "", "text")


def _markup_end(text: str, start: int) -> int:
    """The end of the markup that starts with this `<`; 0 if it is not markup, -1 if it has no end."""
    if text.startswith("<!--", start):
        end = text.find("-->", start + 4)
        return len(text) if end < 0 else end + 3
    opening = MARKUP.match(text, start)
    if not opening:
        return 0
    end = _tag_end(text, opening.end())
    closed_by = CLOSED_BY.get((opening[1] or "").lower())
    if closed_by is None or end < 0 or text[start + 1] == "/":
        return end
    found = closed_by.search(text, end)
    return found.end() if found else len(text)


def _tag_end(text: str, place: int) -> int:
    """The index after the `>` of a tag, not one in quotes; -1 without any."""
    quote = ""
    for i in range(place, len(text)):
        character = text[i]
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character == ">":
            return i + 1
    return -1


def _closed(pieces: Sequence[Markup]) -> dict[int, int]:
    """The number of the end tag for each start tag that has one."""
    waiting: dict[str, list[int]] = {}
    found: dict[int, int] = {}
    for number, piece in enumerate(pieces):
        if piece.kind == "open":
            waiting.setdefault(piece.name, []).append(number)
        elif piece.kind == "close" and waiting.get(piece.name):
            found[waiting[piece.name].pop()] = number
    return found


# --- attributes


def _attributes(text: str, tag: Markup) -> Mapping[str, tuple[int, int]]:
    """The spans of attribute values, without quotes; attributes without a value are omitted."""
    found: dict[str, tuple[int, int]] = {}
    for match in ATTRIBUTE.finditer(text, tag.start + 1 + len(tag.name), tag.end - 1):
        if match[2] is not None:
            start, end = match.span(2)
            quoted = text[start] in "\"'"
            found.setdefault(match[1].lower(), (start + quoted, end - quoted))
    return found


def _is_kept(text: str, attributes: Mapping[str, tuple[int, int]]) -> bool:
    translate, classes = (text[slice(*attributes.get(name, (0, 0)))].lower() for name in ("translate", "class"))
    return translate == "no" or "notranslate" in classes.split()


def _attribute_passages(text: str, attributes: Mapping[str, tuple[int, int]]) -> Iterator[TextPassage]:
    for name in TEXTS:
        start, end = attributes.get(name, (0, 0))
        if text[start:end].strip() and text[start - 1] in "\"'":
            source = BLANKS.sub(" ", unescape_html(text[start:end]))
            yield TextPassage(start, end, (source,), lambda parts: escape(plain(parts)))


# --- texts


def _run_passages(text: str, run: Sequence[Markup]) -> Iterator[TextPassage]:
    """The text of a block, without the tags and blanks around it."""
    run = _trimmed(text, run)
    if not any(piece.kind == "text" and any(map(str.isalpha, text[piece.start : piece.end])) for piece in run):
        return
    start, end = run[0].start, run[-1].end
    if run[0].kind == "text":
        start = run[0].end - len(text[start : run[0].end].lstrip())
    if run[-1].kind == "text":
        end = run[-1].start + len(text[run[-1].start : end].rstrip())
    parts: list[str | Code] = []
    for piece in run:
        raw = text[max(start, piece.start) : min(end, piece.end)]
        parts.append(unescape_html(BLANKS.sub(" ", raw)) if piece.kind == "text" else Code(raw, inline=True))
    codes = tuple((piece.start, piece.end) for piece in run if piece.kind != "text")
    yield TextPassage(start, end, join_parts(parts), _to_html, codes)


def _trimmed(text: str, run: Sequence[Markup]) -> list[Markup]:
    """A run without what surrounds its text: blanks, comments, images, and pairs of tags that enclose all of it."""
    closed, begin, end = _closed(run), 0, len(run)
    pairs = {run[start].start: run[end].start for start, end in closed.items()}
    ends = set(pairs.values())
    while begin < end:
        first, last = run[begin], run[end - 1]
        if _is_around(text, first) or (first.kind == "open" and first.start not in pairs) or first.kind == "close":
            begin += 1
        elif _is_around(text, last) or (last.kind == "close" and last.start not in ends) or last.kind == "open":
            end -= 1
        elif first.kind == "open" and pairs[first.start] == last.start:
            begin, end = begin + 1, end - 1
        else:
            break
    return list(run[begin:end])


def _is_around(text: str, piece: Markup) -> bool:
    if piece.kind == "text":
        return not text[piece.start : piece.end].strip()
    return piece.name in VOID


def _to_html(parts: Parts) -> str:
    raw = [part.text if isinstance(part, Code) and part.inline else _escaped(plain((part,))) for part in parts]
    return "".join(raw)


def _escaped(text: str) -> str:
    return escape(text, quote=False).replace("\u00a0", "&nbsp;")

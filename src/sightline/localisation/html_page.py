"""Pages in HTML (.html, .htm, .xhtml): what stands between tags of blocks is a text, with other tags as its codes.

Scripts, styles, code and preformatted text stay, and so does what says `translate="no"` or has the class `notranslate`
(https://html.spec.whatwg.org/#the-translate-attribute); of attributes `alt`, `title`, `placeholder` and `aria-label`
are texts. Blanks in a text that is translated become one, as a browser shows them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from sightline.localisation.passages import Characters, Passages, TextPassage
from sightline.localisation.unit import Code, Parts, joined, plain, unescaped

CHARSET = re.compile(rb"<meta[^>]*\bcharset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
MARKUP = re.compile(r"<(?:/?([a-zA-Z][a-zA-Z0-9:-]*)|[!?])")
WHOLE = ("script", "style", "code", "pre", "textarea")  # up to the first end tag
CLOSED_BY = {name: re.compile(rf"</{name}\s*>", re.IGNORECASE) for name in WHOLE}
ATTRIBUTE = re.compile(r"([^\s\"'<>/=]+)(?:\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s\"'>]+))?")
TEXTS = ("alt", "title", "placeholder", "aria-label")
KEPT = ("kbd", "samp", "var", "math", "svg")
VOID = ("img", "input", "wbr", "")  # the last is a comment's
INLINE = {
    *("a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font", "i", "ins"),
    *("mark", "nobr", "q", "s", "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u", *KEPT, *VOID),
}
BLANKS = re.compile(r"[ \t\r\n\f]+")


@dataclass(frozen=True)
class Markup:
    """A stretch of a page: a tag, a comment, an element that stays whole, or the text between them."""

    start: int
    end: int
    name: str  # of the tag, in small letters; empty for others
    kind: str  # "text", "open", "close", or "whole"


def read_html(path: str, data: bytes, languages: Sequence[str]) -> Passages:
    """A page in the encoding that it names, or else UTF-8; `languages` say nothing to it.

    Raises:
        UserError: it is in another encoding; with the line.
    """
    named = CHARSET.search(data[:2048])
    return page(Characters(path, data, (named[1].decode(), "utf-8") if named else ("utf-8",)))


def page(characters: Characters) -> Passages:
    """The texts of a page, whatever it says of its encoding."""
    return Passages(characters, _passages(characters.text))


def _passages(text: str) -> Iterator[TextPassage]:
    pieces = list(_pieces(text))
    closed = _closed(pieces)
    run: list[Markup] = []
    number = 0
    while number < len(pieces):
        piece = pieces[number]
        said = _attributes(text, piece) if piece.kind == "open" else {}
        if piece.name in KEPT or _is_kept(text, said):
            number = closed.get(number, number)
            piece = Markup(piece.start, pieces[number].end, piece.name, "whole")
        elif said:
            yield from _attribute_passages(text, said)
        if piece.kind == "text" or piece.name in INLINE:
            run.append(piece)
        else:
            yield from _run_passages(text, run)
            run = []
        number += 1
    yield from _run_passages(text, run)


# --- where tags begin and end


def _pieces(text: str) -> Iterator[Markup]:
    """Stretches that joined are the page; no character is looked at often."""
    start = place = 0
    while (place := text.find("<", place)) >= 0:
        end, found = _markup_end(text, place), MARKUP.match(text, place)
        if end < 0:  # a tag that never ends: the rest is text, as it is for a reader
            break
        if end == 0:  # no tag
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
    """Where what begins with this `<` ends; 0 where it is no markup, -1 where it has no end."""
    if text.startswith("<!--", start):
        end = text.find("-->", start + 4)
        return len(text) if end < 0 else end + 3
    begun = MARKUP.match(text, start)
    if not begun:
        return 0
    end = _tag_end(text, begun.end())
    closed_by = CLOSED_BY.get((begun[1] or "").lower())
    if closed_by is None or end < 0 or text[start + 1] == "/":
        return end
    found = closed_by.search(text, end)
    return found.end() if found else len(text)


def _tag_end(text: str, place: int) -> int:
    """Behind the `>` that closes a tag; one between quotes does not. -1 where there is none."""
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
    """The number of the end tag of each start tag that has one."""
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
    """Where the values of a tag's attributes stand, without their quotes; those that have none are left out."""
    found: dict[str, tuple[int, int]] = {}
    for match in ATTRIBUTE.finditer(text, tag.start + 1 + len(tag.name), tag.end - 1):
        if match[2] is not None:
            start, end = match.span(2)
            quoted = text[start] in "\"'"
            found.setdefault(match[1].lower(), (start + quoted, end - quoted))
    return found


def _is_kept(text: str, said: Mapping[str, tuple[int, int]]) -> bool:
    translate, classes = (text[slice(*said.get(name, (0, 0)))].lower() for name in ("translate", "class"))
    return translate == "no" or "notranslate" in classes.split()


def _attribute_passages(text: str, said: Mapping[str, tuple[int, int]]) -> Iterator[TextPassage]:
    for name in TEXTS:
        start, end = said.get(name, (0, 0))
        if text[start:end].strip() and text[start - 1] in "\"'":
            source = BLANKS.sub(" ", unescaped(text[start:end]))
            yield TextPassage(start, end, (source,), lambda parts: escape(plain(parts)))


# --- texts


def _run_passages(text: str, run: Sequence[Markup]) -> Iterator[TextPassage]:
    """The text of a block: tags and blanks around it stay where they are."""
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
        parts.append(unescaped(BLANKS.sub(" ", raw)) if piece.kind == "text" else Code(raw, inline=True))
    codes = tuple((piece.start, piece.end) for piece in run if piece.kind != "text")
    yield TextPassage(start, end, joined(parts), _spelt, codes)


def _trimmed(text: str, run: Sequence[Markup]) -> list[Markup]:
    """A run without what stands around its text: blanks, comments, pictures, and pairs of tags that enclose it all."""
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


def _spelt(parts: Parts) -> str:
    raw = [part.text if isinstance(part, Code) and part.inline else _escaped(plain((part,))) for part in parts]
    return "".join(raw)


def _escaped(text: str) -> str:
    return escape(text, quote=False).replace("\u00a0", "&nbsp;")

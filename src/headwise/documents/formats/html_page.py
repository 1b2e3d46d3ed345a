"""HTML (.html, .htm, .xhtml): the text between block-level tags is a unit; other tags are inline codes.

Scripts, styles, code and preformatted text stay, as do elements with `translate="no"` or the class `notranslate`
(https://html.spec.whatwg.org/#the-translate-attribute). The attributes that the standard calls translatable are units,
and so are labels of buttons and the descriptions of a page for search engines. Whitespace in a translated text
collapses to one blank, as in a browser. If the target language is known, a filled page gets it as its `lang`, and the
`dir` of its script.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from html import escape
from itertools import accumulate

from headwise.documents.formats.html_pieces import Offsets, PagePiece, element_end, is_xhtml, page_pieces
from headwise.documents.markup.direction import direction_of
from headwise.documents.markup.markup import CONTROLS
from headwise.documents.markup.placeholders import EMBEDDED
from headwise.documents.passages import FRONT_MATTER, Characters, Passages, TextPassage
from headwise.documents.unit import Code, Parts, Skipped, join_parts, plain, unescape_html

CHARSET = re.compile(rb"<meta[^>]*\bcharset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
TEXTS = (
    *("alt", "title", "placeholder", "label", "abbr", "aria-label", "aria-description", "aria-placeholder"),
    *("aria-roledescription", "aria-valuetext"),
)
BUTTONS = ("submit", "button", "reset")  # types of `input` whose value is their label
DESCRIPTIONS = {
    *("description", "og:title", "og:description", "og:image:alt", "twitter:title", "twitter:description"),
    *("twitter:image:alt",),
}
KEPT = {  # elements that stay with all their content, and what they are
    **dict.fromkeys(("code", "kbd", "samp", "var"), "code"),
    **{"math": "formula", "svg": "drawing", "script": "script", "style": "style"},
    **{"pre": "preformatted text", "textarea": "text field"},
}
KEPT_INLINE = ("code", "kbd", "samp", "var", "math", "svg")
UNSEEN = ("script", "style")
NOT_FOR_TRANSLATION = 'translate="no"'
VOID = ("img", "input", "wbr", "")  # the last one is a comment
INLINE = {
    *("a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "data", "del", "dfn", "em", "font", "i", "ins", "mark"),
    *("nobr", "q", "s", "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u", *KEPT_INLINE, *VOID),
}
BLANKS = re.compile(r"[ \t\r\n\f]+")
TEMPLATES = re.compile(f"({EMBEDDED})")
LANGUAGE = re.compile(r"[a-zA-Z]{2,3}(?:[-_][a-zA-Z0-9]{2,8})*")


def read_html(path: str, data: bytes, languages: Sequence[str]) -> Passages:
    """Read a page in its declared encoding, else UTF-8; a filled page gets the second of the `languages`."""
    named = CHARSET.search(data[:2048])
    characters = Characters(path, data, (named[1].decode(), "utf-8") if named else ("utf-8",))
    return parse_html(characters, languages[1])


def parse_html(characters: Characters, language: str = "") -> Passages:
    """The document of a page, whatever encoding it declares; `language` is that of the translation, if known."""
    front = FRONT_MATTER.match(characters.text)
    text = re.sub(r"[^\r\n]", " ", front[0]) + characters.text[front.end() :] if front else characters.text
    pieces = page_pieces(characters.path, text)
    is_xml = is_xhtml(characters.path, text)
    nbsp = "&#160;" if is_xml else "&nbsp;"
    root = next((piece for piece in pieces if piece.name == "html" and piece.kind == "open"), None)
    edits = _language_edits(text, root, language) if root and LANGUAGE.fullmatch(language) else ()
    skipped: dict[int, Skipped] = {0: characters.skipped("front matter", 0, front.end())} if front else {}
    passages = list(_passages(characters, text, pieces, nbsp, skipped))
    if is_xml:
        passages = [replace(one, to_file=partial(_without_controls, one.to_file)) for one in passages]
    shown = {start for passage in passages for start, *_ in passage.codes}  # within a text
    return Passages(characters, passages, edits, [one for start, one in skipped.items() if start not in shown])


def _without_controls(to_file: Callable[[Parts], str], parts: Parts) -> str:
    return CONTROLS.sub("", to_file(parts))


def _passages(
    characters: Characters, text: str, pieces: Sequence[PagePiece], nbsp: str, skipped: dict[int, Skipped]
) -> Iterator[TextPassage]:
    """Fills `skipped` with the texts that stay, by position; `text` is the page with blanks for its front matter."""
    run: list[PagePiece] = []
    number = 0
    while number < len(pieces):
        piece = pieces[number]
        if piece.kind in ("open", "empty") and (piece.name in KEPT or _is_kept(text, piece.attributes)):
            first, number = number, element_end(pieces, number) if piece.kind == "open" else number
            if any(_has_letters(text, inner) for inner in pieces[first:number]) and piece.name not in UNSEEN:
                kind = KEPT.get(piece.name, NOT_FOR_TRANSLATION)
                skipped[piece.start] = characters.skipped(kind, piece.start, pieces[number].end)
            piece = PagePiece(piece.start, pieces[number].end, piece.name, "other")
        elif piece.attributes:
            yield from _attribute_passages(text, piece)
        elif piece.kind == "other" and (text.startswith("<![CDATA[", piece.start) or text[piece.end - 1] != ">"):
            skipped[piece.start] = characters.skipped("CDATA section or unclosed tag", piece.start, piece.end)
        if piece.kind == "text" or piece.name in INLINE:
            run.append(piece)
        else:
            yield from _run_passages(text, run, nbsp)
            run = []
        number += 1
    yield from _run_passages(text, run, nbsp)


# --- attributes


def _text_of(text: str, attributes: Mapping[str, Offsets], name: str) -> str:
    """The value of an attribute, without quotes."""
    start, end = _inner(text, attributes[name]) if name in attributes else (0, 0)
    return unescape_html(text[start:end])


def _inner(text: str, value: Offsets) -> Offsets:
    start, end = value
    quoted = text[start : start + 1] in ("'", '"')
    return (start + 1, end - 1) if quoted else value


def _is_kept(text: str, attributes: Mapping[str, Offsets]) -> bool:
    translate, classes = (_text_of(text, attributes, name).lower() for name in ("translate", "class"))
    return translate == "no" or "notranslate" in classes.split()


def _attribute_passages(text: str, tag: PagePiece) -> Iterator[TextPassage]:
    names = list(TEXTS)
    if tag.name == "input" and _text_of(text, tag.attributes, "type").lower() in BUTTONS:
        names.append("value")
    if tag.name == "meta" and DESCRIPTIONS & {
        _text_of(text, tag.attributes, name).strip().lower() for name in ("name", "property")
    }:
        names.append("content")
    for value in (tag.attributes[name] for name in names if name in tag.attributes):
        start, end = _inner(text, value)
        if text[start:end].strip():
            quote = "" if start > value[0] else '"'
            source = BLANKS.sub(" ", unescape_html(text[start:end]))
            yield TextPassage(start, end, (source,), lambda parts, quote=quote: f"{quote}{escape(plain(parts))}{quote}")


def _language_edits(text: str, root: PagePiece, language: str) -> Iterator[TextPassage]:
    """`lang` and `dir` of a translated page."""
    direction = direction_of(language)
    wanted = {"lang": language.replace("_", "-")}
    if "xml:lang" in root.attributes:
        wanted["xml:lang"] = wanted["lang"]
    if direction == "rtl" or "dir" in root.attributes:
        wanted["dir"] = direction
    behind = root.start + len("<html")
    new = "".join(f' {name}="{value}"' for name, value in wanted.items() if name not in root.attributes)
    yield TextPassage(behind, behind, (), lambda _: new)
    for name in wanted.keys() & root.attributes.keys():
        start, end = root.attributes[name]
        yield TextPassage(start, end, (), lambda _, value=wanted[name]: f'"{value}"')


# --- texts


def _run_passages(text: str, run: Sequence[PagePiece], nbsp: str) -> Iterator[TextPassage]:
    """The text of a block, without the tags and blanks around it."""
    run = _with_marks(text, _trimmed(text, run))
    if not any(_has_letters(text, piece) for piece in run):
        return
    start, end = run[0].start, run[-1].end
    if run[0].kind == "text":
        start = run[0].end - len(text[start : run[0].end].lstrip())
    if run[-1].kind == "text":
        end = run[-1].start + len(text[run[-1].start : end].rstrip())
    parts: list[str | Code] = []
    for piece in run:
        raw = text[max(start, piece.start) : min(end, piece.end)]
        parts += _text_parts(raw) if piece.kind == "text" else [Code(raw, inline=True)]
    codes = tuple((one.start, one.end, text[one.start : one.end]) for one in run if one.kind != "text")
    yield TextPassage(start, end, join_parts(parts), partial(_to_html, nbsp), codes)


def _text_parts(raw: str) -> list[str | Code]:
    """A text between tags; templates in it (`<%= name %>`) are written back as they are."""
    pieces = TEMPLATES.split(raw)
    return [Code(p, inline=True) if i % 2 else unescape_html(BLANKS.sub(" ", p)) for i, p in enumerate(pieces)]


def _has_letters(text: str, piece: PagePiece) -> bool:
    return any(map(str.isalpha, _text(text, piece)))


def _text(text: str, piece: PagePiece) -> str:
    """The text of a piece; "" for a tag."""
    return unescape_html(text[piece.start : piece.end]) if piece.kind == "text" else ""


def _closed(run: Sequence[PagePiece]) -> dict[int, int]:
    """The number of the end tag for each start tag that has one."""
    waiting: dict[str, list[int]] = {}
    found: dict[int, int] = {}
    for number, piece in enumerate(run):
        if piece.kind == "open":
            waiting.setdefault(piece.name, []).append(number)
        elif piece.kind == "close" and waiting.get(piece.name):
            found[waiting[piece.name].pop()] = number
    return found


def _with_marks(text: str, run: Sequence[PagePiece]) -> list[PagePiece]:
    """A run in which each superscript or subscript without letters is one piece, except inside a word (H2O)."""
    closed, found, number = _closed(run), list[PagePiece](), 0
    letters = [0, *accumulate(_has_letters(text, piece) for piece in run)]
    while number < len(run):
        piece, end = run[number], closed.get(number, 0)
        if piece.name in ("sup", "sub") and end and letters[number] == letters[end]:
            before, behind = (_text(text, one) for one in (run[max(0, number - 1)], run[min(end + 1, len(run) - 1)]))
            if not (before[-1:].isalpha() and behind[:1].isalpha()):
                piece, number = PagePiece(piece.start, run[end].end, piece.name, "other"), end
        found.append(piece)
        number += 1
    return found


def _trimmed(text: str, run: Sequence[PagePiece]) -> list[PagePiece]:
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


def _is_around(text: str, piece: PagePiece) -> bool:
    if piece.kind == "text":
        return not text[piece.start : piece.end].strip()
    return piece.name in VOID or piece.kind == "empty"


def _to_html(nbsp: str, parts: Parts) -> str:
    return "".join(
        part.text
        if isinstance(part, Code) and part.inline
        else escape(plain((part,)), quote=False).replace("\u00a0", nbsp)
        for part in parts
    )

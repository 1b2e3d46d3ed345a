"""Markdown (.md) by `markdown-it-py`, which finds the blocks (CommonMark with GitHub's tables).

Paragraphs, headings, list items, table cells and titles of blocks are units. The texts of links and images are part of
them, between two codes; their titles are units of their own (`markdown_titles.py`). Code and HTML blocks and front
matter stay, as do code, HTML, addresses and escapes inside a text. A translated paragraph is one line. Hard line
breaks, and lines without text, separate units.
`markdown_dialects.py` hides the markup of other dialects from the parser.
A heading that a link of the page points to keeps its address by an anchor (`<a id="..."></a>`).
Deviation: `[a text]` that is its own reference becomes `[a translation][a text]`.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from html import escape
from itertools import pairwise
from typing import Any
from urllib.parse import unquote

from headwise.documents.formats.markdown_dialects import code_in_tags, is_masked, masked_dialects, without_filler
from headwise.documents.formats.markdown_titles import definition_titles, inline_titles, masked_link_ends, unmasked
from headwise.documents.markup.inline_boundaries import inline_markdown
from headwise.documents.markup.placeholders import with_codes
from headwise.documents.not_translated import beginning_of
from headwise.documents.passages import FRONT_MATTER, Characters, Passages, TextPassage
from headwise.documents.unit import CLOSES, OPENS, Code, Parts, Skipped, join_parts, plain
from headwise.errors import UserError

LINE_END = re.compile(r"\r\n?|\n")
BREAKS = re.compile(r"(?:(?<! ) {2,}|\\)$")  # at a line's end
ATTRIBUTES = re.compile(r"\{:[^{}]*\}")  # of Kramdown
TASK = re.compile(r"\[[ xX]\](?:\s+|$)")
OPENING = re.compile(r"!?\[|[*_~]+")
BLOCK = re.compile(  # start of another block
    r"(?:#{1,6}|[-+*]|\d{1,9}[.)]|:)(?=\s|$)|>|~~~|:{3}|!{3}|\?{3}|={3}|\$\$|\[\^[^\s\]]+\]:"
)
HTML_BLOCK = re.compile(  # https://spec.commonmark.org/0.31.2/#html-blocks
    r"</?(?:address|article|aside|base|basefont|blockquote|body|caption|center|col|colgroup|dd|details|dialog|dir|div|dl|"
    r"dt|fieldset|figcaption|figure|footer|form|frame|frameset|h[1-6]|head|header|hr|html|iframe|legend|li|link|main|menu|"
    r"menuitem|nav|noframes|ol|optgroup|option|p|param|search|section|summary|table|tbody|td|tfoot|th|thead|title|tr|track|"
    r"ul)(?=[\s/>]|$)|<(?:pre|script|style|textarea)(?=[\s>]|$)|<!|<\?",
    re.IGNORECASE,
)
SKIPPED = {"fence": "code block", "code_block": "code block", "html_block": "HTML block"}
TAG = re.compile(r"<!--(?:[^<-]|<(?!!--)|-(?!->))*+-->|<[^<>]*>")
TEMPLATE_TAG = re.compile(r"\{%(?:[^%{\n]|%(?!\})|\{(?!%))*+%\}|\{\{[<%][^{}\n]*+\}\}")
PIPE = re.compile(r"(?<!\\)\|")
BLANKS = re.compile(r"[ \t\r\n]+")
LINK_BRACKET = re.compile(r"(?<!\\)[\[\]]")
LINK_TO_HEADING = re.compile(r"\]\(\s?<?#([^\s()<>\"]+)|\]:[ \t]*<?#([^\s<>]+)|href=[\"']#([^\s\"']+)")
ANCHOR = re.compile(r"(?:id|name)=[\"']([^\s\"']+)|\{[^{}\n]*#([\w-]+)")
REFERENCE = re.compile(
    r"(?<!`)(`{1,9})(?!`).*?(?<!`)\1(?!`)|(?<!\])(!?\[)((?:[^\[\]\\]|\\.){1,999})\](?:\[\])?(?![\[(:])|"
    r"(?P<tag>\{%|\{\{[<%])"
)


def read_markdown(path: str, data: bytes, languages: Sequence[str]) -> Passages:
    """Read a Markdown file; `languages` are ignored."""
    try:
        from markdown_it import MarkdownIt
    except ImportError:
        raise UserError(f'{path}: reading .md files needs markdown-it-py: pip install "headwise[files]"') from None
    characters, found = Characters(path, data), dict[str, Any]()
    front = FRONT_MATTER.match(characters.text)
    begin = front.end() if front else 0
    blocks = MarkdownIt("commonmark").enable("table").disable(["inline", "text_join"])
    shown, code = masked_dialects(characters.text[begin:])
    masked = characters.text[:begin] + shown
    tokens = blocks.parse(masked[begin:], found)
    lines = _line_spans(characters.text, begin)
    passages = list(_passages(characters.text, masked, lines, tokens, found.get("references", {})))
    skipped = [*_skipped(characters, begin, tokens), *_skipped_code(characters, begin, code)]
    passages += definition_titles(characters, lines, found, skipped)
    return Passages(characters, passages, skipped=skipped)


def _skipped(characters: Characters, begin: int, tokens: Sequence[Any]) -> Iterator[Skipped]:
    """Front matter, and blocks of code and HTML."""
    if any(map(str.isalpha, characters.text[:begin])):
        yield characters.skipped("front matter", 0, begin)
    first = characters.line(begin)
    for token in tokens:
        text = TAG.sub("", token.content) if token.type == "html_block" else token.content
        if token.type in SKIPPED and any(map(str.isalpha, text)):
            kind = "directive" if token.info.lstrip().startswith("{") else SKIPPED[token.type]
            yield Skipped(kind, first + token.map[0], beginning_of(text))


def _skipped_code(characters: Characters, begin: int, code: Sequence[tuple[int, int]]) -> Iterator[Skipped]:
    """The code in template tags."""
    for start, end in code:
        if any(map(str.isalpha, TEMPLATE_TAG.sub("", characters.text[begin + start : begin + end]))):
            yield characters.skipped("code block", begin + start, begin + end)


def _line_spans(text: str, begin: int) -> list[tuple[int, int]]:
    ends = [found.span() for found in LINE_END.finditer(text, begin)]
    return list(zip([begin, *(end for _, end in ends)], [*(start for start, _ in ends), len(text)], strict=True))


def _passages(
    text: str, masked: str, lines: Sequence[tuple[int, int]], tokens: Sequence[Any], references: Collection[str]
) -> Iterator[TextPassage]:
    """Passages for every inline token; text that does not occur as parsed stays."""
    cells_end = 0  # of the preceding cell in the row
    linked = {unquote(next(filter(None, found.groups()))): None for found in LINK_TO_HEADING.finditer(text)}
    for found in ANCHOR.finditer(text):
        linked.pop(found[1] or found[2], None)
    titles = Counter[str]()  # by their addresses
    for before, token in pairwise(tokens):
        if token.type != "inline":
            continue
        first = token.map[0]
        is_cell = before.type in ("th_open", "td_open")
        if is_cell:
            content = token.content.replace("|", r"\|")
            at = masked.find(content, max(cells_end, lines[first][0]), lines[first][1])
            cells_end = max(cells_end, at + len(content))
            runs = [[(at, at + len(content))]] if at >= 0 else []
        else:
            runs = _runs(masked, lines[first : first + token.content.count("\n") + 1], token.content.split("\n"))
        found = [one for run in runs for one in _run_passages(text, run, references, is_cell)]
        if before.type == "heading_open" and found and masked[slice(*lines[first])] == text[slice(*lines[first])]:
            found[0] = _with_address(found[0], linked, titles)
        yield from found


def _runs(text: str, lines: Sequence[tuple[int, int]], read: Sequence[str]) -> list[list[tuple[int, int]]]:
    """The line spans of a block, grouped by unit; prefixes (`> `, `- `) have no letters."""
    runs: list[list[tuple[int, int]]] = [[]]
    for number, ((start, end), line) in enumerate(zip(lines, map(str.strip, read), strict=True)):
        at = text.rfind(line, start, end)
        if at < 0:
            return []
        task = None if number else TASK.match(line)
        at, line = (at + task.end(), line[task.end() :]) if task else (at, line)
        breaks = BREAKS.search(text, at, end)
        start, end = without_filler(text, at, breaks.start() if breaks else at + len(line))
        if start < end and not ATTRIBUTES.fullmatch(line):
            runs[-1].append((start, end))
        else:  # a line without text, or the attributes of a block
            runs.append([])
        if breaks:
            runs.append([])
    return [run for run in runs if run]


def _run_passages(
    text: str, run: Sequence[tuple[int, int]], references: Collection[str], is_cell: bool
) -> list[TextPassage]:
    """A text, and the titles of its links and images."""
    start, end = run[0][0], run[-1][1]
    line = " ".join(text[slice(*span)] for span in run)
    parts = _with_references(line, references)
    codes, titles = inline_titles(line, parts, run)
    parts = _mapped(parts, lambda text: BLANKS.sub(" ", text))
    while (pair := _enclosing_codes(parts)) and text.endswith(pair[1].text, start, end):
        start, end, parts = start + len(pair[0].text), end - len(pair[1].text), parts[1:-1]
    inside = text[start:end]
    start, end = end - len(inside.lstrip()), start + len(inside.rstrip())
    whole = TextPassage(start, end, parts, partial(_to_markdown, parts, is_cell), tuple(codes), markup="markdown")
    return [whole, *titles]


def _with_address(heading: TextPassage, linked: Collection[str], titles: Counter[str]) -> TextPassage:
    """A heading with an anchor before its translation if the page links to it.

    Counts it in `titles`: the addresses of further headings with the same text end in a number.
    """
    shown = _shown(heading.source)
    github = _address(shown)
    number = titles[github]
    titles[github] += 1
    joined = re.sub("-+", "-", github).strip("-")
    variants = {github, joined, re.sub(r"^[^a-z]+", "", joined), joined.replace("_", "")}
    wanted = variants if not number else {f"{one}{sign}{number}" for one in variants for sign in "-_"}
    link = next((link for link in linked if link.lower() in wanted), "")
    if not link:
        return heading

    def written(parts: Parts) -> str:
        return f'<a id="{escape(link)}"></a>{heading.to_file(parts)}'

    return replace(heading, to_file=written)


def _shown(parts: Parts) -> str:
    """The text of a heading without tags and the addresses of links."""
    return "".join(
        part if isinstance(part, str) else part.text
        for part in parts
        if isinstance(part, str) or part.text[0] not in "]<{"
    )


def _address(shown: str) -> str:
    """The address of a heading on GitHub.

    >>> _address("Set up: `my_tool`, v2"), _address("Größe & Maß")
    ('set-up-my_tool-v2', 'größe--maß')
    """
    return re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")


def _with_references(line: str, references: Collection[str]) -> Parts:
    """The parts of a text; a link whose text is its reference gets an explicit reference."""
    from markdown_it.common.utils import normalizeReference

    whole, line = line, masked_link_ends(line)
    pieces, at = list[str | Code](), 0
    next_ends = dict[str, tuple[int, int]]()
    for found in REFERENCE.finditer(line):
        if found["tag"]:
            end = code_in_tags(line, found.start(), next_ends) if found.start() >= at else -1
            if end > 0:
                pieces += [line[at : found.start()], Code(line[found.start() : end])]
                at = end
            continue
        if found.start() < at:  # in code
            continue
        if found[2] and normalizeReference(found[3]) in references:
            pieces += [line[at : found.start()], Code(found[2]), found[3], Code(f"][{found[3]}]")]
            at = found.end()
    return unmasked(whole, line, with_codes(join_parts([*pieces, line[at:]]), "markdown"))


def _enclosing_codes(parts: Parts) -> tuple[Code, Code] | None:
    """The first and last part if they enclose the rest: `**a text**`, `[a text](address)`."""
    first, last = (parts[0], parts[-1]) if len(parts) > 2 else ("", "")
    if not (isinstance(first, Code) and isinstance(last, Code) and OPENING.fullmatch(first.text)):
        return None
    fits = last.text.startswith("]") if first.text.endswith("[") else last.text == first.text
    return (first, last) if fits and first not in parts[1:-1] and last not in parts[1:-1] else None


def _to_markdown(source: Parts, is_cell: bool, parts: Parts) -> str:
    """A translation as one line of Markdown that starts no block, unless the source does."""
    parts = _mapped(parts, lambda text: BLANKS.sub(" ", PIPE.sub(r"\\|", text) if is_cell else text))
    parts = _with_balanced_links(parts)
    text = (inline_markdown(parts) if inline_markdown(source) == plain(source) else plain(parts)).strip()
    if BLOCK.match(text):
        return text if BLOCK.match(plain(source)) else re.sub(r"^\d*", r"\g<0>\\", text)
    begins_block = [HTML_BLOCK.match(one) is not None or is_masked(one) for one in (text, plain(source))]
    return f"&#8203;{text}" if begins_block == [True, False] else text  # a space without width: tags have no escape


def _with_balanced_links(parts: Parts) -> Parts:
    """A text with an escape before each bracket in a link that has no partner there, because it would end the link."""
    opened: list[list[tuple[int, int]]] = []  # the brackets in each link around a part: number and index
    loose: dict[int, list[int]] = {}
    for n, part in enumerate(parts):
        if isinstance(part, Code):
            if part.kind == OPENS and part.text.endswith("["):
                opened.append([])
            elif part.kind == CLOSES and part.text.startswith("]") and opened:
                for number, at in opened.pop():
                    loose.setdefault(number, []).append(at)
            continue
        for found in LINK_BRACKET.finditer(part) if opened else ():
            if found[0] == "[":
                opened[-1].append((n, found.start()))
            elif opened[-1]:
                opened[-1].pop()
            else:
                loose.setdefault(n, []).append(found.start())
    if not loose:
        return parts
    return tuple(
        "".join("\\" * (at in loose.get(n, ())) + character for at, character in enumerate(part))
        if isinstance(part, str) and n in loose
        else part
        for n, part in enumerate(parts)
    )


def _mapped(parts: Parts, change: Callable[[str], str]) -> Parts:
    return tuple(change(part) if isinstance(part, str) else part for part in parts)

"""Titles in Markdown: of links and images (`[text](address "title")`), and of definitions (`[label]: address "title"`).

A translated title keeps its quotes: characters that could end it, or that could be markup, become character references
(https://spec.commonmark.org/0.31.2/#link-title). A definition without an address (`[//]: # (title)`) is a comment.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, chain
from typing import Any

from headwise.documents.passages import Characters, TextPassage
from headwise.documents.unit import Code, Parts, Skipped, plain

TITLES = r"\"((?:[^\"\\]|\\.)*+)\"|'((?:[^'\\]|\\.)*+)'|\(((?:[^()\\]|\\.)*+)\)"
ADDRESS = r"<(?:[^<>\\]|\\.)*+>|(?:\\[()\\]|[^()\s]|\((?:\\[()\\]|[^()\s]|\((?:\\[()\\]|[^()\s])*+\))*+\))*+"
CODE_SPAN = r"(?<!`)(?P<marks>`{1,9})(?!`).*?(?<!`)(?P=marks)(?!`)"
LINK_END = re.compile(rf"{CODE_SPAN}|\]\(\s*+(?:{ADDRESS})(?:\s++(?:{TITLES}))?+\s*+\)", re.DOTALL)
IN_LINK = re.compile(rf"\]\(\s*+(?:<[^<>]*>|[^\s<]\S*+)\s++(?:{TITLES})\s*+\)", re.DOTALL)
AT_END = re.compile(rf"(?<=\s)(?:{TITLES})[ \t]*+$", re.DOTALL)
BLANKS = re.compile(r"[ \t\r\n]+")
LINE_START = re.compile(r"(?:\r\n?|\n)[ \t>]*")
SPECIAL = re.compile(r"[\"'()<>`|]|&(?=[#\w]\w*;)|\\(?=[!-/:-@\[-`{-~]|\s*+\Z)")


def masked_link_ends(line: str) -> str:
    r"""The line with a simple address of the same length, and without a title, in each end of a link.

    >>> masked_link_ends(r'[a](b "\"c\" [d]") `e](f "g")`')
    '[a](xxxxxxxxxxxxx) `e](f "g")`'
    """
    return LINK_END.sub(lambda found: found[0] if found["marks"] else f"]({'x' * (len(found[0]) - 3)})", line)


def located(line: str, parts: Parts) -> Iterator[tuple[int, str | Code, bool]]:
    """The parts of a line with their positions, and whether they are in it: `][label]` may be for `]` or `][]`."""
    at = 0
    for part in parts:
        text = plain((part,))
        is_there = line.startswith(text, at)
        yield at, part, is_there
        at += len(text) if is_there else len("][]" if line.startswith("][]", at) else "]")


def unmasked(line: str, masked: str, parts: Parts) -> Parts:
    """The parts of a masked line as parts of the line."""
    if masked == line:
        return parts
    return tuple(
        part
        if not is_there
        else line[at : at + len(part)]
        if isinstance(part, str)
        else replace(part, text=line[at : at + len(part.text)])
        for at, part, is_there in located(masked, parts)
    )


def inline_titles(
    line: str, parts: Parts, run: Sequence[tuple[int, int]]
) -> tuple[list[tuple[int, int, str]], list[TextPassage]]:
    """The ends of links and images with a title, as `TextPassage.codes`, and these titles.

    Args:
        line: a text, whose lines are joined by blanks.
        parts: of the line; a link whose text is its reference may have an explicit one.
        run: the span of each line in the file.
    """
    starts = list(accumulate((end - start + 1 for start, end in run), initial=0))

    def in_file(at: int) -> int:
        number = bisect_right(starts, at) - 1
        return run[number][0] + at - starts[number]

    codes, titles = list[tuple[int, int, str]](), list[TextPassage]()
    for at, part, _ in located(line, parts):
        text = part.text if isinstance(part, Code) else ""
        found = IN_LINK.match(text)
        if found and found[found.lastindex or 0].strip():
            codes.append((in_file(at), in_file(at + len(text)), text))
            start, end = found.span(found.lastindex or 0)
            titles.append(_title_passage(in_file(at + start), in_file(at + end), text[start:end]))
    return codes, titles


def definition_titles(
    characters: Characters, lines: Sequence[tuple[int, int]], found: Mapping[str, Any], skipped: list[Skipped]
) -> Iterator[TextPassage]:
    """The titles of reference definitions that `markdown-it-py` found; appends comments to `skipped`."""
    from markdown_it.common.utils import unescapeAll

    for one in chain(found.get("references", {}).values(), found.get("duplicate_refs", ())):
        if not any(map(str.isalpha, one["title"])):
            continue
        first, behind = one["map"]
        begin, stop = lines[first][0], lines[behind - 1][1]
        title = AT_END.search(characters.text, begin, stop)
        start, end = title.span(title.lastindex or 0) if title else (begin, stop)
        raw = LINE_START.sub(" ", characters.text[start:end])
        if one["href"] in ("", "#"):
            skipped.append(characters.skipped("comment", start, end))
        elif title and unescapeAll(raw).split() == one["title"].split():
            yield _title_passage(start, end, raw)
        else:
            skipped.append(characters.skipped("title of a link or image", start, end))


def _title_passage(start: int, end: int, raw: str) -> TextPassage:
    """The title between two characters of the file, whose lines are joined in `raw`."""
    from markdown_it.common.utils import unescapeAll

    source = BLANKS.sub(" ", unescapeAll(raw)).strip()
    return TextPassage(start, end, (source,), partial(_to_title, raw))


def _to_title(raw: str, parts: Parts) -> str:
    """A translation as a title; a placeholder stays as it is in the file."""
    pieces = (
        part.text
        if isinstance(part, Code) and part.text in raw
        else SPECIAL.sub(_reference, BLANKS.sub(" ", plain((part,))))
        for part in parts
    )
    return "".join(pieces).strip()


def _reference(found: re.Match[str]) -> str:
    """A character reference.

    >>> SPECIAL.sub(_reference, 'a "b" & c &amp; \\\\*')
    'a &quot;b&quot; & c &amp;amp; &#92;*'
    """
    return {'"': "&quot;", "&": "&amp;", "<": "&lt;", ">": "&gt;"}.get(found[0], f"&#{ord(found[0])};")

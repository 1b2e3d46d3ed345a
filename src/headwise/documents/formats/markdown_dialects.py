"""Markup of Markdown dialects, masked so that a CommonMark parser finds their blocks.

A masked text has the same length and lines. What is no text becomes `FILLER`; a line with a title becomes a heading; a
line that contains the indented lines below it becomes an item of a list. Dialects: Python-Markdown with its extensions
and mkdocs-material (admonitions, tabs, definition lists, attribute lists, snippets, abbreviations), GitHub and Obsidian
(alerts, footnotes, maths), Docusaurus, VitePress and MyST (directives, roles, targets), Jinja, Liquid and Hugo
(templates). What template tags such as `{% raw %}` enclose is code. See `placeholders.py` for markup inside a line.
"""

import re
from collections.abc import Iterator

FILLER = "\ufdd0"  # a noncharacter
LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n|$)")
PREFIX = re.compile(r"[ \t]*(?:>[ \t]*)*(?:(?:[-+*]|\d{1,9}[.)])[ \t]+)?")
FENCE = re.compile(r"(`{3,}(?=[^`]*$)|~{3,}|:{3,})(.*)")
DIRECTIVE = re.compile(r"[ \t]*\{(\w[\w:+.-]*)\}[ \t]*")  # behind a fence, in MyST
NAME = re.compile(r"[ \t]*[\w-]*[ \t]*\[?")  # behind `:::`, in Docusaurus and VitePress
TITLE_END = re.compile(r"(?<![ \t])[ \t]*(?:\]?\{[^{}]*\}|\])$|\"$")
WITH_TEXT = {  # directives of MyST whose content is Markdown
    *(
        "admonition",
        "attention",
        "caution",
        "danger",
        "error",
        "hint",
        "important",
        "note",
        "seealso",
        "tip",
        "warning",
    ),
    *("card", "dropdown", "grid", "grid-item", "grid-item-card", "margin", "sidebar", "tab-item", "tab-set", "topic"),
    *("versionadded", "versionchanged", "deprecated", "div", "epigraph", "details"),
}
TITLED = WITH_TEXT - {"grid", "grid-item", "tab-set", "versionadded", "versionchanged", "deprecated", "div"}
OPTION = re.compile(r":[\w-]+:")
CONTAINER = re.compile(r'(?:!!!|\?\?\?\+?)[ \t]+[\w-][\w \t-]*+(?:"|$)|===[+!]?[ \t]+"')
INDENTED = re.compile(r":(?=[ \t]+\S)|\[\^[^\s\[\]]+\]:(?=[ \t]|$)")  # definitions, of terms and of footnotes
HEADED = re.compile(r"\*\[[^\[\]]+\]:|///[^|]*\|?")  # abbreviations, blocks of pymdownx
ALERT = re.compile(r"\[![\w-]+\][+-]?")
ALONE = re.compile(
    r";?-{1,2}8<-{1,2}.*|\{:?[ \t]*(?:[.#][^{}]*|[\w-]+=[^{}]*)\}|(?:\{%(?:[^%]|%(?!\}))*+%\}[ \t]*)++|\{\{[^{}]*\}\}|"
    r"\\\[.*[=^_{\\].*\\\]|\[TOC\]|\[\[_?toc_?\]\]|\([\w:./ -]+\)=|\+\+\+(?:[ \t].*)?|%[ \t].*|"
    r"import\b.*\bfrom[ \t]*['\"].*|import[ \t]+['\"].*|export[ \t]+(?:const|default|function)\b.*",
    re.IGNORECASE,
)
SEVERAL_LINES = {"$$": "$$", r"\[": r"\]", "{%": "%}", "{{<": ">}}", "{{%": "%}}"}  # maths and templates
MOST_CHARACTERS = 5000  # of them
CODE_TAGS = (  # tags of templates whose content is code or a comment: of Liquid, Jinja, Django, Hexo, Hugo and others
    "highlight|raw|verbatim|code|codeblock|prism|comment|javascript|stylesheet|schema|style|script|mermaid|plantuml|"
    "math|katex|latex|console|rawhtml|html|chart|goat"
)
CODE_TAG = re.compile(
    rf"\{{%[-+]?[ \t]*({CODE_TAGS})\b(?:[^%{{\n]|%(?!\}})|\{{(?!%))*+%\}}|"
    rf"\{{\{{[<%][ \t]*({CODE_TAGS})\b[^{{}}\n]*+(?<!/[>%])\}}\}}"
)


def masked_dialects(text: str) -> tuple[str, list[tuple[int, int]]]:
    """A text of the same length for a CommonMark parser, and the spans of the code in template tags."""
    code: list[tuple[int, int]] = []
    return "".join(_lines(text.replace(FILLER, "x"), code)), code


def code_in_tags(text: str, start: int, next_ends: dict[str, tuple[int, int]]) -> int:
    """The end of the code in template tags that starts here, with its end tag; -1 for anything else.

    Args:
        text: all text.
        start: where an opening tag may start.
        next_ends: the end tags that earlier calls for the same text found, which are not looked for again.

    >>> text = "{% raw %} a {% endraw %} b"
    >>> text[: code_in_tags(text, 0, {})], code_in_tags("{% if a %} b {% endif %}", 0, {})
    ('{% raw %} a {% endraw %}', -1)
    """
    tag = CODE_TAG.match(text, start)
    if not tag:
        return -1
    closing = (
        rf"\{{%[-+]?[ \t]*end{tag[1]}[ \t]*[-+]?%\}}" if tag[1] else rf"\{{\{{[<%][ \t]*/[ \t]*{tag[2]}[ \t]*[>%]\}}\}}"
    )
    if closing not in next_ends or next_ends[closing][0] < tag.end():
        found = re.compile(closing).search(text, tag.end())
        next_ends[closing] = found.span() if found else (len(text) + 1, -1)
    return next_ends[closing][1]


def is_masked(line: str) -> bool:
    """Whether a line is markup of a dialect, or begins some that another line may end.

    >>> is_masked("[TOC]"), is_masked("{{< a"), is_masked("$$ x $$ y"), is_masked("[a]: x")
    (True, True, False, False)
    """
    begins = any(line.startswith(opening) and end not in line[2:] for opening, end in SEVERAL_LINES.items())
    return begins or any(_masked_line(line, is_quoted) != line for is_quoted in (False, True))


def without_filler(text: str, start: int, end: int) -> tuple[int, int]:
    """A span of a masked text without filler and blanks at its ends."""
    inside = text[start:end]
    first = len(inside) - len(inside.lstrip(f"{FILLER} \t"))
    return (start + first, max(start + first, start + len(inside.rstrip(f"{FILLER} \t"))))


def _lines(text: str, code: list[tuple[int, int]]) -> Iterator[str]:
    """Every line, masked; appends the spans of code in template tags to `code`."""
    fences: list[tuple[str, bool, int]] = []  # open ones, whether their content is text, and their column
    closing = ""  # the end of maths or a template of several lines
    options = False  # whether the preceding line opened a directive
    quote, next_ends = "", dict[str, tuple[int, int]]()  # the prefix of lines in template tags, and their ends
    for found in LINE.finditer(text):
        line = found[0].rstrip("\r\n")
        if code and found.start() < code[-1][1]:
            blanks = line[: len(line) - len(line.lstrip(quote))]
            size = len(line[len(blanks) :].rstrip())
            yield blanks + FILLER * size + found[0][len(blanks) + size :]
            continue
        prefix = PREFIX.match(line)
        at = prefix.end() if prefix else 0
        body = line[at:].rstrip()
        tail = found[0][at + len(body) :]
        fence = FENCE.match(body)
        shown, is_option = body, False
        if closing:
            closing = "" if closing in body else closing
            shown = FILLER * len(body)
        elif fences and fence and _closes(line[:at], fence, *fences[-1]):
            _, has_text, _ = fences.pop()
            shown = _headed(body, len(body)) if has_text else body.replace(":", "~")
        elif fences and not fences[-1][1]:
            pass  # code
        elif fence:
            shown, has_text = _opened(body, fence[1], fence[2])
            is_option = has_text
            fences += [(fence[1], has_text, at)] if fence[2] or fence[1][0] != ":" else []
        elif options and OPTION.match(body):
            shown, is_option = FILLER * len(body), True
        elif (end := code_in_tags(text, found.start() + at, next_ends)) >= 0 and (
            end >= found.start() + at + len(body)  # otherwise it is in a text
        ):
            code.append((found.start() + at, end))
            quote = " \t>" if ">" in line[:at] else " \t"
            shown = FILLER * len(body)
        else:
            closing = _unclosed(body, text, found.end())
            shown = FILLER * len(body) if closing else _masked_line(body, ">" in line[:at])
        options = is_option
        yield line[:at] + shown + tail


def _closes(prefix: str, fence: re.Match[str], marker: str, _: bool, column: int) -> bool:
    """Whether a line closes the innermost fence: as long a marker, alone, and not in indented code."""
    return fence[1].startswith(marker) and not fence[2] and not prefix.strip(" \t>") and len(prefix) < column + 4


def _opened(body: str, marker: str, rest: str) -> tuple[str, bool]:
    """The masked line that opens a fence or directive, and whether its content is text."""
    directive = DIRECTIVE.match(rest)
    if (directive and directive[1] not in WITH_TEXT) or (marker[0] != ":" and not directive):
        return marker.replace(":", "~") + rest, False
    if directive and directive[1] not in TITLED:
        return _headed(body, len(body)), True
    name = directive or NAME.match(rest)
    return _headed(body, len(marker) + (name.end() if name else 0)), True


def _headed(body: str, start: int) -> str:
    """A heading whose text starts at an index."""
    end = TITLE_END.search(body, start)
    stop = end.start() if end else len(body)
    return f"# {FILLER * (start - 2)}{body[start:stop]}{FILLER * (len(body) - max(start, stop))}"


def _unclosed(body: str, text: str, end: int) -> str:
    """The closing marker of maths or a template that ends in a later line; "" for anything else."""
    for opening, closing in SEVERAL_LINES.items():
        if body.startswith(opening) and closing not in body[2:]:
            return closing if text.find(closing, end, end + MOST_CHARACTERS) >= 0 else ""
    return ""


def _masked_line(body: str, is_quoted: bool) -> str:
    if ALONE.fullmatch(body):
        return FILLER * len(body)
    if found := CONTAINER.match(body):
        return f"- {_headed(body[2:], found.end() - 2)}"
    if found := INDENTED.match(body):
        return "- "[: found.end()] + FILLER * (found.end() - 2) + body[found.end() :]
    if found := ALERT.match(body) if is_quoted else HEADED.match(body):
        return _headed(body, found.end())
    return body

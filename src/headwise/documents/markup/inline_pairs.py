"""Which inline codes belong together: each code of a text becomes the opening or the closing end of a span, or a point.

Pairs are start and end tags of XML and HTML (also `bpt` and `ept`, `bx` and `ex`, `sc` and `ec` of exchange formats),
tags of templates (`{% if x %}` and `{% endif %}`, `{{#x}}` and `{{/x}}`), and in their languages the ends of emphasis
and links. Codes without a partner are points (a placeholder, a line break), except tags of the file format, whose
partner may be in another text: their span reaches to the beginning or end of the text.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from headwise.documents.unit import CLOSES, OPENS, POINT, Code, Parts, join_parts, plain

TOGGLES = "toggles"  # opens, or closes what it has opened
ATTRIBUTES = r"(?:[^<>\"']|\"[^\"]*\"|'[^']*')*+"
START_TAG = re.compile(rf"<([A-Za-z\d][\w:.-]*)(?:\s{ATTRIBUTES})?(?<!/)>")
END_TAG = re.compile(r"</([A-Za-z\d][\w:.-]*)\s*>")
SEPARATE = re.compile(r"<(?:\w+:)?(bpt|bx|sc|ept|ex|ec)\b([^<>]*)", re.DOTALL)  # start or end of a span
SEPARATE_KINDS = {"ept": "bpt", "ex": "bx", "ec": "sc"}
SEPARATE_ID = re.compile(r"\b(startRef|rid|i|id)\s*=\s*[\"']([^\"']*)")
VOID = {  # elements of HTML that have no end tag: https://html.spec.whatwg.org/#void-elements
    *("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"),
}
TEMPLATE = re.compile(r"\{%-?\s*(end)?(\w+)|\{\{([#^/])\s*([\w.-]+)|\{\{[<%]\s*(/?)\s*([\w./-]+)")
STYLE = re.compile(r"\{\\([ibus])([01])\}")  # of subtitles
CRITIC = {"{++": "++}", "{--": "--}", "{~~": "~~}", "{==": "==}", "{>>": "<<}"}
BRACKET = re.compile(r"!?\[|\]")
EMPHASIS = re.compile(r"\*+|_+|~~|==|\^\^")


def with_kinds(parts: Parts, markup: str = "") -> Parts:
    """The same parts, with the kind of every code; `markup` is as `Unit.markup`.

    >>> [part.kind for part in with_kinds((Code("<b>"), "a", Code("</b>"), Code("<i>"))) if isinstance(part, Code)]
    ['opens', 'closes', 'point']
    """
    languages = markup.split()
    parts = _with_links(parts) if "markdown" in languages else parts
    numbers = [n for n, part in enumerate(parts) if isinstance(part, Code)]
    if not numbers:
        return parts
    roles = {n: _role(part, languages) for n in numbers if isinstance(part := parts[n], Code)}
    if "markdown" in languages:
        roles |= {n: (_side(parts, n), key) for n, (role, key) in roles.items() if role == TOGGLES}
    kinds = _kinds(roles)
    found = [
        replace(part, kind=kinds.get(n) or _alone(part, roles[n][0])) if isinstance(part, Code) else part
        for n, part in enumerate(parts)
    ]
    if "markdown" not in languages:
        return tuple(found)
    return join_parts([part.text if isinstance(part, Code) and _is_loose(part) else part for part in found])


def _side(parts: Parts, number: int) -> str:
    """Whether marks of emphasis can open it, close it or both, by the characters beside them (CommonMark, 6.2)."""
    before, marks, after = (plain((part,)) for part in ("", *parts, "")[number : number + 3])
    opens = bool(after[:1].strip()) and not (marks[:1] == "_" and before[-1:].isalnum())
    closes = bool(before[-1:].strip()) and not (marks[:1] == "_" and after[:1].isalnum())
    return TOGGLES if opens and closes else OPENS if opens else CLOSES if closes else POINT


def _is_loose(code: Code) -> bool:
    """Whether a code looks like an end of emphasis of Markdown but has no partner, so that it is text."""
    return code.kind == POINT and EMPHASIS.fullmatch(code.text) is not None


def _with_links(parts: Parts) -> Parts:
    """Brackets that begin a link or an image of Markdown as codes, and others as text."""
    opened: list[tuple[int, int]] = []  # the number of a part, and the index of a bracket in a string
    begins: dict[int, list[int]] = {}
    for n, part in enumerate(parts):
        if isinstance(part, str):
            for found in BRACKET.finditer(part):
                if found[0] != "]":
                    opened.append((n, found.start()))
                elif opened:
                    opened.pop()
        elif part.text in ("[", "!["):
            opened.append((n, 0))
        elif part.text.startswith(("](", "][")) and opened:
            number, at = opened.pop()
            begins.setdefault(number, []).append(at)
    pieces: list[str | Code] = []
    for n, part in enumerate(parts):
        if isinstance(part, str):
            end = 0
            for at in sorted(begins.get(n, ())):
                bracket = "[" if part[at] == "[" else "!["
                pieces += [part[end:at], Code(bracket)]
                end = at + len(bracket)
            pieces.append(part[end:])
        else:
            pieces.append(part if part.text not in ("[", "![") or n in begins else part.text)
    return join_parts(pieces)


def _kinds(roles: dict[int, tuple[str, str]]) -> dict[int, str]:
    """The kinds of the codes that have a partner, and of those between them that have none."""
    kinds: dict[int, str] = {}
    opened: list[tuple[int, str]] = []
    waiting = Counter[str]()  # keys in `opened`
    for n, (role, key) in roles.items():
        if role in (CLOSES, TOGGLES) and waiting[key]:
            while True:
                start, name = opened.pop()
                waiting[name] -= 1
                if name == key:
                    break
                kinds[start] = POINT  # is not nested
            kinds |= {start: OPENS, n: CLOSES}
        elif role in (OPENS, TOGGLES):
            opened.append((n, key))
            waiting[key] += 1
    return kinds


def _alone(code: Code, role: str) -> str:
    """The kind of a code without a partner."""
    return role if code.inline and role in (OPENS, CLOSES) else POINT


def _role(code: Code, languages: Sequence[str]) -> tuple[str, str]:
    """The roles that a code may have by its text, and a key that it shares with its partner."""
    text = code.text
    if text[:1] == "<":
        return _tag_role(text)
    if text[:1] == "{":
        return _template_role(text)
    if "markdown" in languages:
        return _markdown_role(text)
    if "rst" in languages or "restructuredtext" in languages:
        return _rst_role(text)
    return POINT, ""


def _tag_role(text: str) -> tuple[str, str]:
    if found := END_TAG.fullmatch(text):
        return CLOSES, found[1].lower()
    if found := SEPARATE.match(text):
        name = SEPARATE_KINDS.get(found[1], found[1])
        ids = dict(SEPARATE_ID.findall(found[2]))
        key = next((ids[one] for one in ("startRef", "rid", "i", "id") if one in ids), "")
        return CLOSES if found[1] in SEPARATE_KINDS else OPENS, f"{name} {key}"
    found = START_TAG.fullmatch(text)
    return (OPENS, found[1].lower()) if found and found[1].lower() not in VOID else (POINT, "")


def _template_role(text: str) -> tuple[str, str]:
    if found := STYLE.fullmatch(text):
        return OPENS if found[2] == "1" else CLOSES, found[1]
    for opening, closing in CRITIC.items():
        if text == opening:
            return OPENS, closing
    if not (found := TEMPLATE.match(text)):
        return POINT, ""
    name = found[2] or found[4] or found[6]
    return CLOSES if found[1] or found[3] == "/" or found[5] else OPENS, f"template {name}"


def _markdown_role(text: str) -> tuple[str, str]:
    if text in ("[", "!["):
        return OPENS, "["
    if text.startswith(("](", "][")):
        return CLOSES, "["
    if text in CRITIC.values():
        return CLOSES, text
    return (TOGGLES, text) if EMPHASIS.fullmatch(text) else (POINT, "")


def _rst_role(text: str) -> tuple[str, str]:
    if text in ("*", "**"):
        return TOGGLES, text
    if text == "`":
        return OPENS, text
    return (CLOSES, "`") if text in ("`_", "`__") or (text[:1].isspace() and text.endswith("_")) else (POINT, "")

"""Blanks around inline markup that is at a new place: emphasis of Markdown and markup of reStructuredText need them.

See `inline_pairs.py` for the codes that end emphasis, and `markdown.py` and `rst.py` for blocks.
"""

import re
import unicodedata
from collections.abc import Sequence

from headwise.documents.unit import CLOSES, OPENS, Code, Parts, plain

BEGINS, ENDS = "\ufdd1", "\ufdd2"  # noncharacters that mark where inline markup begins and ends
EMPHASIS = re.compile(r"[*_]+|~~")
EMPTY = re.compile(rf"{BEGINS}[*_~]+{ENDS}[*_~]+")
LOOSE_OPENING = re.compile(rf"(?<![*_~])((?:{BEGINS}[*_~]++)++)(\s+)")
LOOSE_CLOSING = re.compile(rf"(?<!\s)(\s+)((?:{ENDS}[*_~]++)+)")
EMPHASIS_ENDS = re.compile(rf"(?:[{BEGINS}{ENDS}][*_~]++)++")
INLINE = re.compile(r"[*`|\[]|:\w|\s<|[A-Za-z0-9][\w.+-]*_$")  # codes that need a blank or punctuation around them
RST_ENDS = re.compile(rf"(?<=(.)){BEGINS}|{ENDS}(?={BEGINS}*+(.)){BEGINS}?", re.DOTALL)
PREFIXES, SUFFIXES = "\"'([{<-/:", "\"')]}>-/:\\.,;!?\u201a\u201e"  # punctuation before and behind inline markup


def inline_markdown(parts: Parts) -> str:
    """The text, with blanks where emphasis needs them: none inside, and one outside of punctuation that it begins with.

    See https://spec.commonmark.org/0.31.2/#emphasis-and-strong-emphasis. The codes of the parts have their kinds.

    >>> bold, end = Code("**", kind=OPENS), Code("**", kind=CLOSES)
    >>> inline_markdown(("a ", bold, " b ", end, "c")), inline_markdown(("a", bold, "(b)", end))
    ('a  **b** c', 'a **(b)**')
    """
    if any(mark in plain(parts) for mark in (BEGINS, ENDS)):
        return plain(parts)
    text = EMPTY.sub("", "".join(part if isinstance(part, str) else _marked(part) for part in parts))
    text = LOOSE_OPENING.sub(r"\2\1", text)
    text = LOOSE_CLOSING.sub(r"\2\1", text)
    text = EMPHASIS_ENDS.sub(_apart, text)
    return text.replace(BEGINS, "").replace(ENDS, "")


def _marked(code: Code) -> str:
    """The text of a code, after a mark if it begins or ends emphasis."""
    mark = {OPENS: BEGINS, CLOSES: ENDS}.get(code.kind, "")
    return mark + code.text if EMPHASIS.fullmatch(code.text) else code.text


def _apart(found: re.Match[str]) -> str:
    """Marks of emphasis, first those that close it, with a blank where there would be no emphasis without it."""
    marks, (start, end) = found[0], found.span()
    before, after = found.string[start - 1 : start] if start else "", found.string[end : end + 1]
    closing, begins, opening = marks.partition(BEGINS)
    if closing and opening:
        return f"{closing}{' ' * (closing[-1] == opening[0])}{begins}{opening}"
    inner, outer = (before, after) if closing else (after, before)
    is_word = bool(outer.strip()) and not _is_punctuation(outer)
    blank = " " * bool(is_word and ("_" in marks or (inner and _is_punctuation(inner))))
    return f"{closing}{blank}{begins}{opening}" if opening else f"{closing}{blank}"


def _is_punctuation(character: str) -> bool:
    """Whether CommonMark takes a character for punctuation."""
    return unicodedata.category(character)[0] in "PS"


def inline_rst(parts: Parts) -> str:
    """A text with the escaped blanks that inline markup needs around it.

    >>> inline_rst(("a", Code("``b``"), "c ", Code("``d``"), "."))
    'a\\\\ ``b``\\\\ c ``d``.'
    """
    text, waiting, opened = "", "", set[str]()
    for part in parts:
        raw = part if isinstance(part, str) else part.text
        if isinstance(part, str) or not INLINE.match(raw):
            bare = raw.lstrip() if waiting else raw
            text, waiting = text + raw[: len(raw) - len(bare)] + waiting + bare, ""
        elif raw in ("*", "**", "`") and raw not in opened:  # its text follows
            opened.add(raw)
            waiting += BEGINS + raw
        elif raw in ("*", "**", "`_", "`__") or raw[0] == " ":  # the end of a text
            opened -= {raw, "`"}
            if waiting.endswith(BEGINS + raw.strip("_")):  # without a text there is no markup
                waiting = waiting.removesuffix(BEGINS + raw.strip("_"))
                continue
            bare = text.rstrip()
            shown = raw.lstrip() if waiting.endswith(BEGINS + "`") else raw  # a link to itself
            text = f"{bare}{waiting}{shown}{ENDS}{text[len(bare) :]}"
            waiting = ""
        else:
            text, waiting = f"{text}{waiting}{BEGINS}{raw}{ENDS}", ""
    return RST_ENDS.sub(_blank, text + waiting).replace(BEGINS, "").replace(ENDS, "")


def _blank(boundary: re.Match[str]) -> str:
    """The escaped blank that a boundary of inline markup needs, or nothing."""
    before, after = boundary.groups()
    is_free = may_precede_markup(before) if before else may_follow_markup(after)
    return "" if is_free else "\\ "


def may_precede_markup(character: str) -> bool:
    """Whether inline markup of reStructuredText may begin behind this character; "" is the start of a text."""
    kinds = ("Ps", "Pi", "Pf", "Pd", "Po")
    return character in PREFIXES or character.isspace() or _is_docutils_punctuation(character, kinds)


def may_follow_markup(character: str) -> bool:
    """Whether inline markup of reStructuredText may end before this character; "" is the end of a text."""
    kinds = ("Pe", "Pi", "Pf", "Pd", "Po")
    return character in SUFFIXES or character.isspace() or _is_docutils_punctuation(character, kinds)


def _is_docutils_punctuation(character: str, kinds: Sequence[str]) -> bool:
    """Also in the old Unicode that docutils knows, without section signs."""
    databases = (unicodedata, unicodedata.ucd_3_2_0)
    return not character.isascii() and all(one.category(character) in kinds for one in databases)

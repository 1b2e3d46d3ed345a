"""The grammar of ICU MessageFormat: arguments, their types and styles, nested messages, quoting with apostrophes.

https://unicode-org.github.io/icu/userguide/format_parse/messages/. An argument is `{name}`, `{name, type}` or `{name,
type, style}`. Those of `CHOICES` have texts inside their code. Names may also have dots, hyphens, indices and a dollar
sign, as in messageformat.js and templates.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

CHOICES = ("plural", "selectordinal", "select", "choice")
FORMATS_OF_VALUES = (
    *("number", "date", "time", "spellout", "ordinal", "duration", "list"),
    *(
        "datetime",
        "relativetime",
        "currency",
        "percent",
        "unit",
        "upper",
        "lower",
        "uppercase",
        "lowercase",
    ),  # of others
)
NAME = r"\$?\w[\w.-]*+(?:\[[^\[\]{}\s]*+\])*+"
TYPE = rf"({'|'.join(CHOICES)})\s*+,|(?:{'|'.join(FORMATS_OF_VALUES)})\s*+[,}}]"
HEAD = re.compile(rf"\{{\s*+{NAME}\s*+(?:\}}|,\s*+(?:{TYPE}))", re.IGNORECASE)
QUOTE = r"''|'(?=[{}])[^']*+(?:''[^']*+)*+(?:'|\Z)"  # an apostrophe, or quoted text, which begins with a brace
QUOTED_TOKEN, BRACE = re.compile(rf"{QUOTE}|[{{}}]"), re.compile(r"[{}]")


@dataclass(frozen=True)
class IcuSpan:
    """An argument of a message, or quoted text."""

    start: int
    end: int
    kind: str = ""  # one of `CHOICES`, "" for another argument, "'" for quoted text


def icu_spans(text: str, quotes: bool = True) -> list[IcuSpan]:
    """The outermost arguments and quoted texts of a message, in order; a choice without an end extends to the end.

    Args:
        text: a message.
        quotes: whether apostrophes before braces quote them, as in ICU; without, only braces count.

    >>> [text[one.start:one.end] for text in ["On {d, date, short}: {n}, {not closed"] for one in icu_spans(text)]
    ['{d, date, short}', '{n}']
    >>> icu_spans("{n, plural, one {a '}' {x}} other {# files}}")
    [IcuSpan(start=0, end=44, kind='plural')]
    """
    return list(_outermost(text, quotes)) if "{" in text else []


def _outermost(text: str, quotes: bool) -> Iterator[IcuSpan]:
    done: list[IcuSpan] = []
    opened: list[tuple[int, str | None]] = []  # start and kind of arguments; None for other braces
    token = QUOTED_TOKEN if quotes else BRACE
    for found in token.finditer(text):
        at = found.start()
        if found[0] == "{":
            head = HEAD.match(text, at)
            opened.append((at, (head[1] or "").lower() if head else None))
        elif found[0] == "}":
            start, kind = opened.pop() if opened else (at, None)
            if kind is not None:
                while done and done[-1].start > start:
                    done.pop()
                done.append(IcuSpan(start, found.end(), kind))
        elif found[0] != "''" and all(kind is None for _, kind in opened[-1:]):
            done.append(IcuSpan(at, found.end(), "'"))
    unclosed = next((start for start, kind in opened if kind in CHOICES), len(text))
    yield from (one for one in done if one.start < unclosed)
    if unclosed < len(text):
        yield IcuSpan(unclosed, len(text), next(kind for start, kind in opened if start == unclosed) or "")

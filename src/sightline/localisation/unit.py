"""What every format has in common: a document is units, and a unit is a source text with a translation or without one.

A text is a row of parts: strings, which are translated, and codes, which are copied: `Hello <b>world</b>, {name}` is
`("Hello ", Code("<b>"), "world", Code("</b>"), ", {name}")` in a format of tags, and `placeholders.py` finds `{name}`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from html import unescape
from itertools import groupby
from typing import Protocol, runtime_checkable

LONG_NUMBER = re.compile(r"&#(?:()(\d{9,})|([xX])([0-9a-fA-F]{9,}))")  # Python reads none of more than 4,300 digits


class UnitState(StrEnum):
    """How far a unit has come."""

    TRANSLATED = "translated"
    FUZZY = "fuzzy"  # there is a translation that somebody has yet to look at
    UNTRANSLATED = "untranslated"
    KEPT = "not for translation"


@dataclass(frozen=True)
class Code:
    """Something that a translation must hold exactly as its source does.

    `inline` is markup of the file itself, whose characters are written back as they are; any other code is text.
    """

    text: str
    inline: bool = False


Parts = tuple[str | Code, ...]


@dataclass(frozen=True)
class Unit:
    """One text to translate."""

    source: Parts
    target: Parts
    state: UnitState
    line: int  # of the file, from 1
    markup: str = ""  # what stands in its strings beside placeholders: "rst", "markdown"
    key: str = ""  # what a program knows it by, where the format has such keys


@runtime_checkable
class Document(Protocol):
    """A file that has been read."""

    @property
    def units(self) -> Sequence[Unit]:
        """In the order of the file."""
        ...

    def filled(self, targets: Mapping[int, Parts]) -> bytes:
        """The file with these translations, by the unit's number, marked as made by a machine where it can say so.

        Every other byte is what it was.
        """
        ...


def plain(parts: Parts) -> str:
    """The text with its codes as they are written.

    >>> plain(("a ", Code("<b>"), "dog"))
    'a <b>dog'
    """
    return "".join(part if isinstance(part, str) else part.text for part in parts)


def words(parts: Parts) -> str:
    """The text without its inline markup, for training and for counting."""
    return "".join(part if isinstance(part, str) else ("" if part.inline else part.text) for part in parts)


def joined(parts: Sequence[str | Code]) -> Parts:
    """The same parts with neighbouring strings in one and without empty ones.

    >>> joined(["a", "", "b", Code("<x/>")])
    ('ab', Code(text='<x/>', inline=False))
    """
    found: list[str | Code] = []
    for is_text, run in groupby(filter(None, parts), lambda part: isinstance(part, str)):
        several = tuple(run)
        found += [plain(several)] if is_text else several
    return tuple(found)


def unescaped(text: str) -> str:
    """A text with its character references resolved; one to a number that no character has is U+FFFD, as in HTML.

    >>> unescaped("caf&eacute; &#" + "9" * 5000 + ";") == "café \ufffd"
    True
    """
    return unescape(LONG_NUMBER.sub(_shortened, text)) if "&" in text else text


def _shortened(found: re.Match[str]) -> str:
    """A reference to the same character, or to another number beyond all characters."""
    base, digits = found[1] or found[3] or "", found[2] or found[4]
    return f"&#{base}{digits.lstrip('0')[:8] or '0'}"

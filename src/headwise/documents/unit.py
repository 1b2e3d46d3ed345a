"""The data model of all formats: a document has units, and a unit is a source text with or without a translation.

A text is a sequence of parts: strings, which are translated, and codes, which are copied. In a format with tags,
`Hello <b>world</b>, {name}` is `("Hello ", Code("<b>"), "world", Code("</b>"), ", {name}")`; `placeholders.py` finds
`{name}`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from html import unescape
from typing import NamedTuple, Protocol, runtime_checkable

OPENS, CLOSES, POINT = "opens", "closes", "point"  # kinds of codes
LONG_NUMBER = re.compile(r"&#(?:()(\d{9,})|([xX])([0-9a-fA-F]{9,}))")  # Python does not parse more than 4,300 digits


class UnitState(StrEnum):
    """The translation state of a unit."""

    TRANSLATED = "translated"
    FUZZY = "fuzzy"  # has a translation that needs review
    UNTRANSLATED = "untranslated"
    KEPT = "not for translation"


@dataclass(frozen=True)
class Code:
    """Text that a translation must contain unchanged, such as a tag or a placeholder.

    An `inline` code is markup of the file format and is written back unescaped; any other code is text.
    """

    text: str
    inline: bool = False
    kind: str = field(default=POINT, compare=False, repr=False)  # `OPENS`, `CLOSES` or `POINT`: see `inline_pairs.py`


Parts = tuple[str | Code, ...]


def valid_text(text: str) -> str:
    """The text with pairs of surrogates as one character and U+FFFD for others, which no encoding and no output allows.

    Files may contain them as escapes (JSON), or in encodings such as UTF-7.

    >>> valid_text("a\\ud83d\\ude00b\\ud800c") == "a\\U0001f600b\\ufffdc"
    True
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def valid_parts(parts: Parts) -> Parts:
    """The same for a text with codes."""
    return tuple(
        valid_text(part) if isinstance(part, str) else replace(part, text=valid_text(part.text)) for part in parts
    )


@dataclass(frozen=True)
class Unit:
    """One text to translate. Its texts can be encoded, whatever is in the file (`valid_text`)."""

    source: Parts
    target: Parts
    state: UnitState
    line: int  # of the file, from 1
    markup: str = ""  # markup language and grammars of placeholders in its strings: see `placeholders.py`
    key: str = ""  # message key, in formats that have keys
    max_length: int = 0  # characters that its translation may have; 0 = any number
    kept: str = ""  # the kind of text, for units that are `KEPT`, as `Skipped.kind`

    def __post_init__(self) -> None:
        try:
            "".join((plain(self.source), plain(self.target), self.key)).encode()
        except UnicodeEncodeError:
            for name, value in (("source", valid_parts(self.source)), ("target", valid_parts(self.target))):
                object.__setattr__(self, name, value)
            object.__setattr__(self, "key", valid_text(self.key))


@dataclass(frozen=True)
class Skipped:
    """A text of a file that is in no unit, and therefore never translated."""

    kind: str  # such as "code block", in the singular
    line: int  # of the file, from 1
    text: str = ""  # its beginning

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", valid_text(self.text))


class Declared(NamedTuple):
    """A language that a file declares."""

    code: str
    line: int  # of the file, from 1


@runtime_checkable
class Document(Protocol):
    """A parsed file."""

    @property
    def units(self) -> Sequence[Unit]:
        """The units in the order of the file."""
        ...

    @property
    def skipped(self) -> Sequence[Skipped]:
        """The texts that are in no unit; with the units, all texts of the file."""
        ...

    @property
    def source_languages(self) -> Sequence[Declared]:
        """The languages of its texts that the file declares; none if a translation replaces its source."""
        ...

    @property
    def target_languages(self) -> Sequence[Declared]:
        """The languages of its translations that the file declares; none if a translation replaces its source."""
        ...

    def filled(self, targets: Mapping[int, Parts]) -> bytes:
        """The bytes of the file with these translations by unit number, marked as machine translation if possible.

        Codes of a translation have the kinds of those of its source. All other bytes are unchanged.
        """
        ...


def plain(parts: Parts) -> str:
    """The text, including its codes.

    >>> plain(("a ", Code("<b>"), "dog"))
    'a <b>dog'
    """
    return "".join(part if isinstance(part, str) else part.text for part in parts)


def is_unchanged(source: Parts, target: Parts) -> bool:
    """Whether a translation is its source, whose placeholders may not be codes yet."""
    inline = [[code for code in codes_of(parts) if code.inline] for parts in (source, target)]
    return plain(source) == plain(target) and inline[0] == inline[1]


def codes_of(parts: Parts) -> list[Code]:
    """The codes among the parts."""
    return [part for part in parts if isinstance(part, Code)]


def strings_only(parts: Sequence[str | Code]) -> str:
    """The strings among the parts, concatenated."""
    return "".join(part for part in parts if isinstance(part, str))


def has_letters(parts: Parts) -> bool:
    """Whether there is anything to translate.

    >>> has_letters(("5 %",)), has_letters(("5 ", Code("<b>"))), has_letters(("five",))
    (False, False, True)
    """
    return any(character.isalpha() for part in parts if isinstance(part, str) for character in part)


def without_inline_codes(parts: Parts) -> str:
    """The text without inline codes, for training and counting."""
    return "".join(part if isinstance(part, str) else ("" if part.inline else part.text) for part in parts)


def join_parts(parts: Sequence[str | Code]) -> Parts:
    """Merge adjacent strings and drop empty ones.

    >>> join_parts(["a", "", "b", Code("<x/>")])
    ('ab', Code(text='<x/>', inline=False))
    """
    if len(parts) == 1:
        return (parts[0],) if parts[0] else ()
    found: list[str | Code] = []
    texts: list[str] = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        else:
            if text := "".join(texts):
                found.append(text)
            found.append(part)
            texts.clear()
    text = "".join(texts)
    return (*found, text) if text else tuple(found)


def unescape_html(text: str) -> str:
    """Resolve HTML character references; invalid code points become U+FFFD, as in HTML.

    >>> unescape_html("caf&eacute; &#" + "9" * 5000 + ";") == "café \ufffd"
    True
    """
    return unescape(LONG_NUMBER.sub(_shortened, text)) if "&" in text else text


def _shortened(found: re.Match[str]) -> str:
    """An equivalent reference with at most 8 digits; invalid code points stay invalid."""
    base, digits = found[1] or found[3] or "", found[2] or found[4]
    return f"&#{base}{digits.lstrip('0')[:8] or '0'}"

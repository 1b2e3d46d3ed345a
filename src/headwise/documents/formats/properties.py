r"""Java `.properties`, as `java.util.Properties.load` reads them.

A key ends at `=`, `:` or a blank; a backslash at the end of a line continues it; `\uXXXX` is a character. Files are
UTF-8, else Latin-1, as Java has read resource bundles since version 9; ASCII files stay ASCII. In a value with `{0}`
(a pattern of `MessageFormat`) an apostrophe is doubled.
"""

import re
from collections.abc import Iterator, Sequence

from headwise.documents.passages import Characters, Passages, TextPassage
from headwise.documents.unit import Code, Parts, join_parts
from headwise.errors import UserError

LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")
BLANK = r"(?:[ \t\f]|\\(?:\r\n|\r|\n)[ \t\f]*)"
KEY = re.compile(rf"{BLANK}*((?:[^\\:= \t\f\r\n]|\\(?!\r|\n).)*){BLANK}*(?:[=:]{BLANK}*)?")
ESCAPE = re.compile(r"\\(?:(?:\r\n|\r|\n)[ \t\f]*|u([0-9a-fA-F]{4})|(.)|$)")
BROKEN = re.compile(r"(?<!\\)(?:\\\\)*\\u(?![0-9a-fA-F]{4})")
MEANINGS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
QUOTED = re.compile(r"''|('[{}][^']*'?)")  # an apostrophe, or quoted braces, which are not placeholders


def read_properties(path: str, data: bytes, languages: Sequence[str]) -> Passages:
    """Read a resource bundle; `languages` are ignored."""
    characters = Characters(path, data, ("utf-8", "latin-1"))
    in_ascii = characters.encoding == "latin-1" or characters.text.isascii()
    return Passages(characters, _passages(characters, in_ascii))


def _passages(characters: Characters, in_ascii: bool) -> Iterator[TextPassage]:
    for start, end in _entries(characters.text):
        entry = characters.text[start:end]
        if broken := BROKEN.search(entry):
            line = characters.line(start + broken.end())
            raise UserError(f"{characters.path}: line {line}: \\u without four hexadecimal digits; write \\\\u")
        key = KEY.match(entry)
        assert key is not None  # it matches the empty text
        value = _unescape(entry[key.end() :])
        is_pattern = re.search(r"\{\d", value) is not None
        yield TextPassage(
            start + key.end(),
            end,
            _parts(value, is_pattern),
            lambda parts, is_pattern=is_pattern: _to_value(parts, is_pattern, in_ascii),
            key=_unescape(key[1]),
        )


def _entries(text: str) -> Iterator[tuple[int, int]]:
    """The span of each entry, over all its lines."""
    start = -1
    for found in LINE.finditer(text):
        line = found[0].rstrip("\r\n")
        if start < 0 and line.lstrip(" \t\f")[:1] in ("", "#", "!"):
            continue
        start = found.start() if start < 0 else start
        end = found.start() + len(line)
        if (len(line) - len(line.rstrip("\\"))) % 2 == 0 or found.end() == len(text):
            yield start, end
            start = -1


def _unescape(raw: str) -> str:
    """Resolve escapes; surrogate pairs become one character."""
    return ESCAPE.sub(_character, raw).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _character(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16)) if escape[1] else MEANINGS.get(escape[2], escape[2]) if escape[2] else ""


def _parts(value: str, is_pattern: bool) -> Parts:
    if not is_pattern:
        return (value,) if value else ()
    parts, at = list[str | Code](), 0
    for quoted in filter(lambda found: found[1], QUOTED.finditer(value)):
        parts += [value[at : quoted.start()].replace("''", "'"), Code(quoted[1])]
        at = quoted.end()
    return join_parts([*parts, value[at:].replace("''", "'")])


def _to_value(parts: Parts, is_pattern: bool, in_ascii: bool) -> str:
    r"""A translation as a value.

    >>> _to_value(("l'été: ", Code("{0}")), True, True)
    "l''\\u00e9t\\u00e9: {0}"
    """
    doubled = [part.replace("'", "''") if is_pattern and isinstance(part, str) else part for part in parts]
    text = "".join(part if isinstance(part, str) else part.text for part in doubled).replace("\\", "\\\\")
    for letter, character in MEANINGS.items():
        text = text.replace(character, f"\\{letter}")
    text = f"\\{text}" if text.startswith(" ") else text
    if not in_ascii:
        return text
    halves = text.encode("utf-16-be")
    units = (int.from_bytes(halves[i : i + 2]) for i in range(0, len(halves), 2))
    return "".join(chr(unit) if unit < 0x80 else f"\\u{unit:04x}" for unit in units)

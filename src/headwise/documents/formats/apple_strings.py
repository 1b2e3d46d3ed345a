r"""String tables of Apple (`.strings`) and their plurals (`.stringsdict`).

https://developer.apple.com/library/archive/documentation/Cocoa/Conceptual/LoadingResources/Strings/Strings.html.

A value is a unit: `"key" = "value";`, also in single quotes. Files are UTF-8 or UTF-16. A `.stringsdict` is a property
list in XML; the texts of its plural categories are units, and the categories of the target language are added.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial

from headwise.documents.formats.plurals import CATEGORIES, missing_categories
from headwise.documents.formats.xml_texts import ElementText, XmlTexts
from headwise.documents.markup.markup import Element, Source, to_xml
from headwise.documents.passages import Characters, Passages, TextPassage
from headwise.documents.unit import Parts, Skipped, plain
from headwise.errors import UserError

BLANK = re.compile(r"(?:\s|//[^\n]*|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/)*+")
STRING = re.compile(r"\"((?:[^\"\\]|\\.)*+)\"|'((?:[^'\\]|\\.)*+)'|([\w.$/:-]++)", re.DOTALL)
ESCAPE = re.compile(r"\\(?:[Uu]([0-9a-fA-F]{4})|([0-7]{1,3})|(.)|$)", re.DOTALL)
MEANINGS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def read_apple_strings(path: str, data: bytes, languages: Sequence[str]) -> Passages:
    """Read a string table; `languages` are ignored."""
    if data.startswith((b"bplist", b"<?xml")):
        raise UserError(f'{path}: a property list, not a string table; convert it to the form "key" = "value";')
    wide = "utf-16-le" if data[1:2] == b"\0" else "utf-16-be" if data[:1] == b"\0" else "utf-8"
    characters = Characters(path, data, (wide,))
    return Passages(characters, _passages(characters))


def _passages(characters: Characters) -> Iterator[TextPassage]:
    text, at = characters.text, 0
    while (at := _after_blank(text, at)) < len(text):
        key = STRING.match(text, at)
        equals = _after_blank(text, key.end()) if key else at
        value = STRING.match(text, _after_blank(text, equals + 1)) if text[equals : equals + 1] == "=" else None
        last = value or key
        end = _after_blank(text, last.end()) if last else at
        if not key or text[end : end + 1] != ";" or (value is None and text[equals : equals + 1] == "="):
            where = f"{characters.path}: line {characters.line(min(at, len(text) - 1))}"
            raise UserError(f'{where}: invalid string table; expected "key" = "value"; with its quotes and semicolon')
        if value:
            mark = "'" if value[2] is not None else '"'
            to_file = partial(_to_string, mark)
            yield TextPassage(*value.span(), _parts(value), to_file, key=_text(key), markup="apple")
        at = end + 1


def _after_blank(text: str, at: int) -> int:
    """The position after blanks and comments."""
    blank = BLANK.match(text, at)
    return blank.end() if blank else at


def _text(found: re.Match[str]) -> str:
    return found[3] if found[3] is not None else ESCAPE.sub(_character, found[1] if found[2] is None else found[2])


def _parts(found: re.Match[str]) -> Parts:
    text = _text(found).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return (text,) if text else ()


def _character(escape: re.Match[str]) -> str:
    if escape[1] or escape[2]:
        return chr(int(escape[1], 16) if escape[1] else int(escape[2], 8))
    return MEANINGS.get(escape[3], escape[3]) if escape[3] else ""


def _to_string(mark: str, parts: Parts) -> str:
    r"""A text in quotes.

    >>> print(_to_string('"', ('a "b"\n\\',)), _to_string("'", ("it's",)))
    "a \"b\"\n\\" 'it\'s'
    """
    text = plain(parts).replace("\\", "\\\\").replace(mark, f"\\{mark}")
    for letter, character in MEANINGS.items():
        text = text.replace(character, f"\\{letter}") if letter in "ntr" else text
    return f"{mark}{text}{mark}"


def read_stringsdict(path: str, data: bytes, languages: Sequence[str]) -> XmlTexts:
    """Read plurals; without a target language they keep their categories."""
    source = Source(path, data)
    source.check_root("plist", "a property list")
    skipped = [
        Skipped("format", value.line, source.text(value.inner, value.inner_end))
        for table in source.root.every("dict")
        for key, _, value in _pairs(source, table)
        if value.name == "string" and key == "NSStringLocalizedFormatKey"
    ]
    return XmlTexts(source, _plurals(source, languages[1]), skipped)


def _pairs(source: Source, table: Element) -> Iterator[tuple[str, Element, Element]]:
    """Key, its element, and the element of the value."""
    for key, value in zip(table.children[::2], table.children[1::2], strict=False):
        yield source.text(key.inner, key.inner_end), key, value


def _plurals(source: Source, language: str) -> Iterator[ElementText]:
    for table in source.root.every("dict"):
        texts = {key: (name, value) for key, name, value in _pairs(source, table) if value.name == "string"}
        if "NSStringFormatSpecTypeKey" not in texts:
            continue
        present = [key for key in texts if key in CATEGORIES]
        for key in present:
            element = texts[key][1]
            content = source.parts(element, lambda child: False)
            yield ElementText.of(element, content, to_xml, key, "", "apple")
        for name in missing_categories(present, language):
            key, other = texts["other"]
            before = f"{source.indentation(key)}<key>{name}</key>{source.indentation(other)}<string>"
            yield ElementText(
                other.end,
                other.end,
                other.line,
                source.parts(other, lambda child: False),
                lambda parts, before=before: f"{before}{to_xml(parts)}</string>",
                name,
                markup="apple",
            )

"""Tables with a column of sources and one of translations (`.csv`): RFC 4180, with `,`, `;` or a tab between fields.

A first line such as `sep=|` names another separator, as for Excel. As spreadsheets and Python's `csv` do, a quote that
does not start its field is a character like others.

The columns are those whose names are `source` and `target` (or `translation`), or the codes of the languages. A row
with an empty translation is a unit; all other fields keep their bytes. See `headwise.text.files.columns` for tables of
parallel text for training.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from headwise.documents.passages import Characters
from headwise.documents.unit import Declared, Parts, Skipped, Unit, UnitState, has_letters, plain
from headwise.errors import UserError
from headwise.text.language_codes import same_language

SOURCES = ("source", "src", "source text", "source_text", "original", "msgid")
TARGETS = ("target", "tgt", "trg", "target text", "target_text", "translation", "msgstr")
SEPARATORS = ",;\t"
QUOTED = re.compile(r'"((?:[^"]|"")*+)"')
SEPARATOR_LINE = re.compile(r'("?)sep=([^"\r\n\w]?)\1\2*+(?:\r\n?|\n|$)', re.IGNORECASE)
CellSpan = tuple[int, int]


class TranslationTable:
    """A table of sources and translations."""

    source_languages: Sequence[Declared] = ()
    target_languages: Sequence[Declared] = ()

    def __init__(
        self, characters: Characters, separator: str, rows: Sequence[Sequence[CellSpan]], columns: CellSpan
    ) -> None:
        self._characters, self._separator = characters, separator
        self._spans: list[CellSpan] = []
        self.units: list[Unit] = []
        self.skipped: list[Skipped] = []
        for row in rows:
            if len(row) > max(columns):
                self._add(*(row[column] for column in columns))
            elif any(end > start for start, end in row):
                self.skipped.append(characters.skipped("row without both columns", row[0][0], row[-1][1]))

    def _add(self, source_span: CellSpan, target_span: CellSpan) -> None:
        source, target = (_value(self._characters.text[slice(*span)]) for span in (source_span, target_span))
        parts = [(text,) if text else () for text in (source, target)]
        state = UnitState.TRANSLATED if target.strip() else UnitState.UNTRANSLATED
        state = state if has_letters(parts[0]) else UnitState.KEPT
        self._spans.append(target_span)
        self.units.append(Unit(parts[0], parts[1], state, self._characters.line(source_span[0])))

    def filled(self, targets: Mapping[int, Parts]) -> bytes:
        """See `unit.Document`."""
        text, pieces, at = self._characters.text, list[str](), 0
        for number, parts in sorted(targets.items()):
            start, end = self._spans[number]
            quoted = text[start:end].startswith('"')
            pieces += [text[at:start], _to_field(plain(parts), self._separator, quoted)]
            at = end
        return self._characters.encoded("".join([*pieces, text[at:]]))


def _value(raw: str) -> str:
    """The text of a field.

    >>> _value('a "b"'), _value('"a ""b"" c"'), _value('"a, "b"')
    ('a "b"', 'a "b" c', 'a, b"')
    """
    quoted = QUOTED.match(raw)
    return quoted[1].replace('""', '"') + raw[quoted.end() :] if quoted else raw


def _to_field(text: str, separator: str, quoted: bool) -> str:
    """A text as a field.

    >>> _to_field("a, b", ",", False), _to_field("a", ",", False), _to_field(" a", ";", False)
    ('"a, b"', 'a', '" a"')
    """
    needed = quoted or any(mark in text for mark in (separator, '"', "\r", "\n")) or text != text.strip()
    return '"' + text.replace('"', '""') + '"' if needed else text


def _rows(characters: Characters, separator: str, at: int) -> Iterator[list[CellSpan]]:
    """The span of each field from a position on, by row."""
    text, row = characters.text, list[CellSpan]()
    bare = re.compile(rf"[^{re.escape(separator)}\r\n]*+")
    while at <= len(text):
        quoted = QUOTED.match(text, at)
        if quoted is None and text[at : at + 1] == '"':
            where = f"{characters.path}: line {characters.line(at)}"
            raise UserError(f"{where}: a quoted field without its closing quote; add it")
        rest = bare.match(text, quoted.end() if quoted else at)
        assert rest is not None  # it matches the empty text
        row.append((at, rest.end()))
        at = rest.end()
        if text[at : at + 1] == separator:
            at += 1
        else:
            yield row
            row = []
            at += 2 if text.startswith("\r\n", at) else 1
            if at >= len(text):
                return


def named_column(names: Sequence[str], known: Sequence[str], language: str) -> int | None:
    """The column with one of the known names, or with that of a language; None if there is none."""
    fitting = [n for n, name in enumerate(names) if name in known]
    fitting += [n for n, name in enumerate(names) if language and same_language(name, language)]
    return fitting[0] if fitting else None


def read_csv(path: str, data: bytes, languages: Sequence[str]) -> TranslationTable:
    """Read a table; its first row names the columns."""
    characters = Characters(path, data)
    named = SEPARATOR_LINE.match(characters.text)
    if named and not named[2]:
        raise UserError(f"{path}: line 1: 'sep=' without a separator; write one such as 'sep=;'")
    begin = named.end() if named else 0
    first = characters.text[begin:].split("\n", 1)[0]
    separator = named[2] if named else max(SEPARATORS, key=first.count)
    rows = list(_rows(characters, separator, begin))
    names = [_value(characters.text[slice(*span)]).strip().lower() for span in rows[0]]
    source, target = (named_column(names, *side) for side in zip((SOURCES, TARGETS), languages, strict=True))
    if source is None or target is None or source == target:
        known = "name two columns in the first row 'source' and 'target', or by --languages FROM-TO"
        where = f"{path}: line {characters.line(begin)}"
        raise UserError(f"{where}: no columns of sources and translations; {known}; --lines translates it line by line")
    return TranslationTable(characters, separator, rows[1:], (source, target))

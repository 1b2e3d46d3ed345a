"""Glossaries from files: tab-separated lines, CSV with a header, TBX, and lists of what is to stay as it is.

TBX-Basic (https://www.tbxinfo.net), in both styles and both generations: a `termEntry` or `conceptEntry` has the terms
of each language in a `langSet` or `langSec`. The first that is not deprecated is the translation of all those of the
other language. Not here: terms in texts (`terms`).
"""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from sightline.data.corpus import unreadable
from sightline.errors import UserError
from sightline.glossary.terms import Glossary, Term
from sightline.localisation.carrying import uncut
from sightline.localisation.markup import Element, Source, same_language
from sightline.localisation.unit import plain

LARGEST = 64 << 20  # bytes of a file
MOST, MOST_LANGUAGES = 200_000, 500  # terms, and languages of a file
Given: TypeAlias = Glossary | str | Path | Sequence[tuple[str, str]]


def glossary_of(given: Given, languages: Sequence[str] = ("", "")) -> Glossary:
    """A glossary already made, or of a file, or of pairs of texts; `languages` as `read_glossary`."""
    if isinstance(given, Glossary):
        return given
    if isinstance(given, str | Path):
        return Glossary(read_glossary(given, languages))
    return Glossary(Term(source, target) for source, target in given)


def read_glossary(path: str | Path, languages: Sequence[str] = ("", "")) -> list[Term]:
    """The terms of a file: .tbx, .csv, or lines of a source and its target with a tab between them.

    A line without a tab is what stays as it is; empty lines and those that begin with `#` are none.

    Args:
        path: its ending says what it is.
        languages: codes of source and target, for a file that has several; "" = as the file has them.

    Raises:
        UserError: it cannot be read, is no such file, or does not say which of its languages are meant.
    """
    name, data = str(path), _bytes(path)
    if name.lower().endswith(".tbx"):
        terms = list(_of_tbx(name, data, languages))
    elif name.lower().endswith(".csv"):
        try:
            terms = list(_of_csv(name, _text(name, data), languages))
        except csv.Error as error:
            raise UserError(f"{name}: is no CSV ({error}); look for a quotation mark without its partner") from error
    else:
        terms = list(_of_lines(name, _text(name, data)))
    if not terms:
        raise UserError(f"{name}: has no terms: a line is a source, a tab and its target")
    if len(terms) > MOST:
        raise UserError(f"{name}: has {len(terms):,} terms, {MOST:,} at most: keep those of this text")
    return terms


def _bytes(path: str | Path) -> bytes:
    try:
        if Path(path).stat().st_size > LARGEST:
            raise UserError(f"{path}: has more than {LARGEST >> 20} MiB: keep the terms of this text")
        return Path(path).read_bytes()
    except OSError as error:
        raise unreadable(str(path), error) from error


def _text(name: str, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UserError(f"{name}: line {line} is not UTF-8: convert the file, for instance with iconv") from error


def _of_lines(name: str, text: str) -> Iterator[Term]:
    for number, line in enumerate(text.splitlines(), 1):
        columns = [column.strip() for column in line.split("\t")]
        if not any(columns) or line.startswith("#"):
            continue
        if len(columns) > 1 and not (columns[0] and columns[1]):
            raise UserError(f"{name}: line {number} has a tab and one side only: give both, or no tab for what stays")
        yield Term(columns[0], columns[1] if len(columns) > 1 else columns[0], f"{name}: line {number}")


def _of_csv(name: str, text: str, languages: Sequence[str]) -> Iterator[Term]:
    """Columns that the header names `source` and `target`, or as `languages`; otherwise the first two."""
    reader = csv.reader(io.StringIO(text, newline=""))
    header = [column.strip().lower() for column in next(reader, [])]
    if len(header) < 2:
        raise UserError(f"{name}: line 1 is to name two columns or more: source,target")
    named = zip(("source", "target"), languages, strict=True)
    columns = [_column(header, side, code, i) for i, (side, code) in enumerate(named)]
    for row in reader:
        if any(cell.strip() for cell in row):
            cells = [row[column].strip() if column < len(row) else "" for column in columns]
            if not all(cells):
                raise UserError(f"{name}: line {reader.line_num} has one side only: give both")
            yield Term(cells[0], cells[1], f"{name}: line {reader.line_num}")


def _column(header: Sequence[str], side: str, code: str, otherwise: int) -> int:
    return next((header.index(wanted) for wanted in (code.lower(), side) if wanted and wanted in header), otherwise)


def _of_tbx(name: str, data: bytes, languages: Sequence[str]) -> Iterator[Term]:
    source = Source(name, data)
    entries = list(source.root.every("termEntry", "conceptEntry"))
    codes = _codes(name, entries, languages)
    for entry in entries:
        sections = [[s for s in entry.every("langSet", "langSec") if same_language(_code(s), code)] for code in codes]
        ours, theirs = ([term for section in of for term in _terms(source, section)] for of in sections)
        target = next((text for text, deprecated in theirs if not deprecated), None)
        if target:
            yield from (Term(text, target, f"{name}: line {entry.line}") for text in dict.fromkeys(t for t, _ in ours))


def _codes(name: str, entries: Sequence[Element], languages: Sequence[str]) -> list[str]:
    """The languages that are meant: those that were said, or the only two."""
    known: list[str] = []
    for code in dict.fromkeys(_code(section) for entry in entries for section in entry.every("langSet", "langSec")):
        known += [] if any(same_language(code, one) for one in known) else [code]
        if len(known) > MOST_LANGUAGES:
            raise UserError(f"{name}: has terms in more than {MOST_LANGUAGES} languages; is it a glossary?")
    there = ", ".join(known) or "none"
    lacking = [code for code in languages if code and not any(same_language(one, code) for one in known)]
    if lacking:
        raise UserError(f"{name}: has no terms in '{lacking[0]}'; its languages are: {there}")
    if all(languages):
        return list(languages)
    if len(known) != 2 or any(languages):
        raise UserError(f"{name}: which languages? It has {there}; add --languages FROM-TO")
    return known


def _code(section: Element) -> str:
    return section.attributes.get("xml:lang", section.attributes.get("lang", ""))


def _terms(source: Source, section: Element) -> Iterator[tuple[str, bool]]:
    """Those of a language, and whether each is deprecated."""
    for group in section.every("tig", "ntig", "termSec"):
        notes = group.every("termNote", "administrativeStatus")
        said = [plain(source.parts(note, lambda _: False)).strip().lower() for note in notes]
        text = " ".join(uncut(source.parts(term, lambda _: True)).strip() for term in group.every("term"))
        if text:
            yield text, any(one.startswith(("deprecated", "superseded", "obsolete")) for one in said)

"""Glossary files: tab-separated lines, CSV with a header, TBX, and lists of text that stays unchanged.

TBX-Basic (https://www.tbxinfo.net), both styles and both versions: a `termEntry` or `conceptEntry` has the terms of
each language in a `langSet` or `langSec`. The first target term that is not deprecated is the translation of all source
terms. See `terms` for terms in texts.
"""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from headwise.documents.formats.csv_table import SOURCES, TARGETS, named_column
from headwise.documents.glossary.terms import Glossary, Term
from headwise.documents.markup.markup import Element, Source
from headwise.documents.unit import plain, strings_only
from headwise.errors import UserError
from headwise.text.files.sources import count_of, unreadable
from headwise.text.language_codes import LANGUAGE_NAMES, document_language, same_language

MAX_FILE_BYTES = 64 << 20  # bytes of a file
MAX_TERMS, MAX_LANGUAGES = 200_000, 500  # terms, and languages of a file
CODE = re.compile(r"[a-z]{2,3}([-_][a-z]{2,4})?")  # of a language, in small letters
GlossaryInput: TypeAlias = Glossary | str | Path | Sequence[tuple[str, str]]


def load_glossary(glossary: GlossaryInput, languages: Sequence[str] = ("", "")) -> Glossary:
    """A glossary from a glossary, a file, or pairs of texts; `languages` as for `read_glossary`."""
    if isinstance(glossary, Glossary):
        return glossary
    if isinstance(glossary, str | Path):
        return Glossary(read_glossary(glossary, languages))
    return Glossary(Term(source, target) for source, target in glossary)


def read_glossary(path: str | Path, languages: Sequence[str] = ("", "")) -> list[Term]:
    """Read the terms of a file: .tbx, .csv, or lines of source TAB target.

    A line without a tab is text that stays unchanged. Empty lines and lines that start with `#` are ignored. `dog|dogs`
    is two forms of a term, with one translation or one for each; not in .tbx, which lists them as terms.

    Args:
        path: the file; its ending decides the format.
        languages: codes of source and target, for multilingual files; "" = as in the file.

    Raises:
        UserError: unreadable or invalid, or the languages are ambiguous.
    """
    name, data = str(path), _read_bytes(path)
    if name.lower().endswith(".tbx"):
        terms = list(_read_tbx(name, data, languages))
    elif name.lower().endswith(".csv"):
        try:
            terms = list(_read_table(name, csv.reader(io.StringIO(_text(name, data), newline="")), languages))
        except csv.Error as error:
            raise UserError(f"{name}: invalid CSV ({error}); check for unclosed quotation marks") from error
    else:
        terms = list(_read_lines(name, _text(name, data), languages))
    if not terms:
        raise UserError(f"{name}: no terms found; write lines of source TAB target")
    if len(terms) > MAX_TERMS:
        raise UserError(f"{name}: {count_of(len(terms), 'term')}, at most {MAX_TERMS:,}; keep those in the text")
    return terms


def _read_bytes(path: str | Path) -> bytes:
    try:
        if Path(path).stat().st_size > MAX_FILE_BYTES:
            raise UserError(f"{path}: larger than {MAX_FILE_BYTES >> 20} MiB; keep the terms that occur in the text")
        return Path(path).read_bytes()
    except OSError as error:
        raise unreadable(str(path), error) from error


def _text(name: str, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UserError(f"{name}: line {line}: not UTF-8; convert the file, for instance with iconv") from error


def _read_lines(name: str, text: str, languages: Sequence[str]) -> Iterator[Term]:
    lines = io.StringIO(text, newline=None)  # no line ends at U+2028
    if _is_header(lines.readline().strip().lower().split("\t")):
        lines.seek(0)
        yield from _read_table(name, csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE), languages)
        return
    lines.seek(0)
    for number, line in enumerate(lines, 1):
        columns = [column.strip() for column in line.split("\t")]
        if not any(columns) or line.startswith("#"):
            continue
        if len(columns) > 1 and not (columns[0] and columns[1]):
            raise UserError(f"{name}: line {number}: source or target is empty; fill in both, or remove the tab")
        yield from _forms(columns[0], columns[1] if len(columns) > 1 else columns[0], f"{name}: line {number}")


def _is_header(cells: Sequence[str]) -> bool:
    """Whether the first two cells name columns: `source` and `target`, or codes of two languages."""
    first = cells[:2]
    codes = [CODE.fullmatch(cell) and document_language(cell) in LANGUAGE_NAMES for cell in first]
    named = [cell in (*SOURCES, *TARGETS) for cell in first]
    return len({*first}) == 2 and (all(codes) or all(named))


def _read_table(name: str, reader: Any, languages: Sequence[str]) -> Iterator[Term]:
    """The columns named `source` and `target`, or like `languages`; else the first two, if these name no others."""
    header = [column.strip().lower() for column in next(reader, [])]
    if len(header) < 2:
        raise UserError(f"{name}: line 1: expected a header with two columns or more, such as source,target")
    columns = list[int]()
    for usual, (known, language) in enumerate(zip((SOURCES, TARGETS), languages, strict=True)):
        found = named_column(header, known, language)
        columns.append(usual if found is None else found)
        if (found is None and language and CODE.fullmatch(header[usual])) or len(set(columns)) < len(columns):
            wanted = f"in '{language}'" if language else ("of sources", "of translations")[usual]
            fix = "name two columns 'source' and 'target', or choose other languages"
            raise UserError(f"{name}: line 1: no column {wanted}; its columns are {', '.join(header)}; {fix}")
    for row in reader:
        if any(cell.strip() for cell in row) and not row[0].startswith("#"):
            cells = [row[column].strip() if column < len(row) else "" for column in columns]
            if not all(cells):
                raise UserError(f"{name}: line {reader.line_num}: source or target is empty; fill in both")
            yield from _forms(cells[0], cells[1], f"{name}: line {reader.line_num}")


def _forms(source: str, target: str, where: str) -> Iterator[Term]:
    """A term for each form: `dog|dogs` has one translation for all, or as many forms in it."""
    sources, targets = ([form.strip() for form in side.split("|")] for side in (source, target))
    if len(targets) not in (1, len(sources)) or not all((*sources, *targets)):
        raise UserError(
            f"{where}: '{source}' has {len(sources)} forms and '{target}' {len(targets)}; write one translation, or "
            "one for each form, and no empty form"
        )
    for number, form in enumerate(sources):
        yield Term(form, targets[number % len(targets)], where)


def _read_tbx(name: str, data: bytes, languages: Sequence[str]) -> Iterator[Term]:
    source = Source(name, data)
    entries = list(source.root.every("termEntry", "conceptEntry"))
    codes = _language_codes(name, entries, languages)
    for entry in entries:
        sections = [
            [s for s in entry.every("langSet", "langSec") if same_language(_language_code(s), code)] for code in codes
        ]
        sources, targets = ([term for section in several for term in _terms(source, section)] for several in sections)
        target = next((text for text, deprecated in targets if not deprecated), None)
        if target:
            yield from (
                Term(text, target, f"{name}: line {entry.line}") for text in dict.fromkeys(t for t, _ in sources)
            )


def _language_codes(name: str, entries: Sequence[Element], languages: Sequence[str]) -> list[str]:
    """The two languages: the given ones, or the only two of the file."""
    known: list[str] = []
    for code in dict.fromkeys(
        _language_code(section) for entry in entries for section in entry.every("langSet", "langSec")
    ):
        known += [] if any(same_language(code, one) for one in known) else [code]
        if len(known) > MAX_LANGUAGES:
            raise UserError(f"{name}: more than {MAX_LANGUAGES} languages; is this a glossary?")
    available = ", ".join(known) or "none"
    missing = [code for code in languages if code and not any(same_language(one, code) for one in known)]
    if missing:
        raise UserError(f"{name}: no terms in '{missing[0]}'; its languages are: {available}")
    if all(languages):
        return list(languages)
    if len(known) != 2:
        raise UserError(f"{name}: which languages? It has {available}; add --languages FROM-TO")
    source, target = languages
    source = source or next(one for one in known if not target or not same_language(one, target))
    return [source, target or next(one for one in known if not same_language(one, source))]


def _language_code(section: Element) -> str:
    return section.attributes.get("xml:lang", section.attributes.get("lang", ""))


def _terms(source: Source, section: Element) -> Iterator[tuple[str, bool]]:
    """The terms of a language, and whether each is deprecated."""
    for group in section.every("tig", "ntig", "termSec"):
        notes = group.every("termNote", "administrativeStatus")
        statuses = [plain(source.parts(note, lambda _: False)).strip().lower() for note in notes]
        text = " ".join(strings_only(source.parts(term, lambda _: True)).strip() for term in group.every("term"))
        if text:
            yield text, any(one.startswith(("deprecated", "superseded", "obsolete")) for one in statuses)

"""Round trips of public files through `headwise.localisation`, without changes and with all texts in capitals.

    python benchmarks/round_trips.py FOLDER [FOLDER ...]

Reads every file of a supported format (except `.txt`) below the folders. Without translations, the written file must
have the same bytes. With every text in capitals, it must have as many texts as before. If the original is valid, so
must be this file: its XML (also in archives) is well-formed, its JSON or YAML can be parsed, and python-docx,
python-pptx or openpyxl opens it. Office documents are filled a second time, with Arabic as their language. A file that
cannot be read must give a one-line error. The page lists all failures, and counts the refused files by reason and the
texts that are never translated. Writes `results/round-trips_*`.
"""

import argparse
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from zipfile import ZipFile

import docx
import machine
import openpyxl
import pptx
import yaml

from headwise.errors import UserError
from headwise.localisation import is_document
from headwise.localisation.not_translated import NO_LETTERS, not_translated
from headwise.localisation.reading import parse_document, read_document
from headwise.localisation.unit import Code, Document, Parts, UnitState

OFFICE: dict[str, Callable[[BytesIO], Any]] = {
    ".docx": docx.Document,
    ".pptx": pptx.Presentation,
    ".xlsx": partial(openpyxl.load_workbook, rich_text=True),
}
OFFICE_SUFFIXES = (*OFFICE, ".odt", ".ods", ".odp")
ARCHIVES = (*OFFICE_SUFFIXES, ".epub")
XML_MEMBERS = (".xml", ".rels", ".opf", ".ncx", ".xhtml")
PARSERS: dict[str, Callable[[bytes], Any]] = {
    ".json": json.loads,
    ".arb": json.loads,
    ".xcstrings": json.loads,
    ".yml": yaml.safe_load,
    ".yaml": yaml.safe_load,
    **dict.fromkeys(
        (".xml", ".xlf", ".xliff", ".sdlxliff", ".mqxliff", ".tmx", ".resx", ".ts", ".stringsdict"),
        ElementTree.fromstring,
    ),
}


@dataclass
class Tried:
    """Results of the files with one suffix."""

    files: int = 0
    texts: int = 0
    not_translated: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def documents(folders: Sequence[Path]) -> Iterator[Path]:
    """The files below the folders, sorted."""
    for folder in folders:
        found = (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
        yield from sorted(path for path in found if is_document(path.name))


def capitals(parts: Parts) -> Parts:
    """A translation that keeps every code.

    >>> capitals(("a ", Code("<b>"), "dog"))
    ('A ', Code(text='<b>', inline=False), 'DOG')
    """
    return tuple(part if isinstance(part, Code) else part.upper() for part in parts)


def error_of(name: str, data: bytes) -> str:
    """Why another reader cannot read a file; "" if it can, or if there is none."""
    suffix = Path(name).suffix.lower()
    try:
        if suffix in ARCHIVES:
            if open_office := OFFICE.get(suffix):
                open_office(BytesIO(data))
            with ZipFile(BytesIO(data)) as archive:
                for member in archive.namelist():
                    if member.endswith(XML_MEMBERS):
                        ElementTree.fromstring(archive.read(member))
        elif suffix in PARSERS:
            PARSERS[suffix](data)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def wrong(path: Path) -> tuple[int, int, list[str]]:
    """The number of texts of a file and of those that stay, and the failures of its round trips.

    Raises:
        UserError: the file cannot be read in its format.
    """
    document, data = read_document(path), path.read_bytes()
    found = [] if document.filled({}) == data else ["without changes, the bytes differ"]
    found += [f"in capitals, {mistake}" for mistake in wrong_when_filled(path, data, document)]
    if path.suffix.lower() in OFFICE_SUFFIXES:
        arabic = parse_document(str(path), data, ("", "ar"))
        found += [f"from right to left, {mistake}" for mistake in wrong_when_filled(path, data, arabic)]
    stays = sum(one.kind != NO_LETTERS for one in not_translated(document))
    return len(document.units), stays, found


def wrong_when_filled(path: Path, data: bytes, document: Document) -> Iterator[str]:
    """The failures of a document with every text in capitals."""
    texts = {n: unit.source for n, unit in enumerate(document.units) if unit.state is not UnitState.KEPT}
    filled = document.filled({n: capitals(source) for n, source in texts.items() if source})
    again = len(parse_document(str(path), filled).units)
    if again != len(document.units):
        yield f"it has {again} texts, not {len(document.units)}"
    if (error := error_of(path.name, filled)) and not error_of(path.name, data):
        yield f"it is invalid: {error}"


def general_reason(error: str, path: Path) -> str:
    """Why a file was refused, without what only this file has.

    >>> general_reason("a.po: line 3: not valid UTF-8; convert the file", Path("a.po"))
    'not valid UTF-8; convert the file'
    >>> general_reason("a.json: not a catalogue but data: 346 numbers (see --help)", Path("a.json"))
    'not a catalogue but data: … numbers (…)'
    """
    message = re.sub(r"^line \d+: ", "", error.removeprefix(f"{path}: "))
    return re.sub(r"(?<=\().*(?=\))|(?<=')[^']*(?=')|(?<=<)[^>]*(?=>)|(?<![-\d,])\d[\d,]*", "…", message)


def tried(folders: Sequence[Path]) -> dict[str, Tried]:
    """Results by suffix."""
    results: dict[str, Tried] = {}
    for path in documents(folders):
        result = results.setdefault(path.suffix.lower(), Tried())
        result.files += 1
        try:
            texts, stays, mistakes = wrong(path)
        except UserError as error:
            result.refused[general_reason(str(error), path)] += 1
        except Exception as error:
            result.wrong.append(f"{path}: {error!r}")
        else:
            result.texts += texts
            result.not_translated += stays
            result.wrong += [f"{path}: {mistake}" for mistake in mistakes]
    return results


def main() -> None:
    """Read all files, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    machine.add_machine_options(parser)
    options = parser.parse_args()
    about = machine.description(machine.prepare(options))
    results = tried(options.folders)
    header = ["suffix", "files", "texts", "not translated", "refused", "wrong"]
    every = [
        (suffix, [r.files, r.texts, r.not_translated, r.refused.total(), len(r.wrong)])
        for suffix, r in sorted(results.items())
    ]
    every.append(("all", [sum(column) for column in zip(*(counts for _, counts in every), strict=True)]))
    rows = [[suffix, *(f"{count:,}" for count in counts)] for suffix, counts in every]
    sections = [machine.table(header, rows)]
    refused = [(n, suffix, reason) for suffix, r in results.items() for reason, n in r.refused.items()]
    if refused:
        rows = [[suffix, f"{n:,}", reason] for n, suffix, reason in sorted(refused, reverse=True)]
        sections += ["## Refused", machine.table(["suffix", "files", "reason"], rows)]
    if wrong_lines := [line for result in results.values() for line in result.wrong]:
        sections += ["## Wrong", "\n".join(f"- {line}" for line in wrong_lines)]
    print("\n\n".join(sections))
    data = {suffix: vars(result) for suffix, result in results.items()}
    machine.write_result(machine.result_path("round-trips"), "Round trips of public files", about, sections, data)


if __name__ == "__main__":
    main()

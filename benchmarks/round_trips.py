"""Round trips of public files through `headwise.documents`: unchanged, in capitals, and with stand-in models.

    python benchmarks/round_trips.py FOLDER [FOLDER ...]
    python benchmarks/round_trips.py --speed FOLDER [FOLDER ...]

Reads every file of a supported format (except `.txt`) below the folders. A file that cannot be read must give a
one-line error. Otherwise:

- Without translations, the written file must have the same bytes.
- With every text in capitals, it must have as many texts as before. Office documents are filled a second time, with
  Arabic as their language.
- Identity with markup: a stand-in model returns its input, and all texts are translated by the pipeline of
  `documents.fill`. Every translation must equal its source. The file must have the same bytes, or the same members
  if it is an archive. This is not checked in formats with both languages, and if a target language had to be given.
- Reversed word order, without and with markers, and a random alignment: all words change their positions.

With the stand-ins, the page counts for each suffix:

- invalid: another reader (`document_readers.py`) accepts the original and not the translated file, or reports more
  problems; Headwise reads another number of texts; or tags of a unit cross
- codes: units that lost or doubled a tag without the warning "markup lost", and files in which another reader finds
  other elements
- placeholders: units whose placeholders differ from those of the source
- not identical: units, or files, that the identity changed
- units with the warnings "markup lost", "left untranslated", and that a code was placed by alignment

The page lists the first failures of each kind, and counts the refused files by reason and the texts that are never
translated. With `--speed` it has the characters per second of translating with the identity and filling. Writes
`results/round-trips_*`, or `results/filling-speed_*`.
"""

import argparse
import os
import re
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import machine
from document_readers import OFFICE_SUFFIXES, Reading, faults, missing_readers, reading_of
from stand_ins import FAILURES, IDENTITY, REPORTS, STAND_INS, Checked, check, read_either, translate

from headwise.documents import is_document
from headwise.documents.fill import targets_of
from headwise.documents.markup.placeholders import with_codes
from headwise.documents.not_translated import NO_LETTERS, not_translated
from headwise.documents.reading import parse_document
from headwise.documents.unit import Code, Document, Parts, Unit, UnitState, plain
from headwise.errors import UserError

REPEATS = machine.pick(5, 2)


@dataclass
class Tried:
    """Results of the files with one suffix."""

    files: int = 0
    texts: int = 0
    not_translated: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    filled: dict[str, Checked] = field(default_factory=lambda: {name: Checked() for name in STAND_INS})


@dataclass
class Speed:
    """Times of the files with one suffix."""

    characters: int = 0
    seconds: list[float] = field(default_factory=lambda: [0.0] * REPEATS)  # of each repetition

    @property
    def rate(self) -> float:
        """Characters per second, the median."""
        return self.characters / max(1e-9, statistics.median(self.seconds))


def documents(folders: Sequence[Path]) -> Iterator[Path]:
    """The files below the folders, sorted."""
    for folder in folders:
        found = (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
        yield from sorted(path for path in found if is_document(path.name))


def capitals(unit: Unit) -> Parts:
    """A translation that keeps every code and placeholder.

    >>> capitals(Unit(("a ", Code("<b>"), "dog %s"), (), UnitState.UNTRANSLATED, 1))
    ('A ', Code(text='<b>', inline=False), 'DOG ', Code(text='%s', inline=False))
    """
    parts = with_codes(unit.source, unit.markup)
    return tuple(part if isinstance(part, Code) else part.upper() for part in parts)


def try_file(path: Path, result: Tried) -> None:
    """Add a file's number of texts and of those that stay, and the failures of its round trips.

    Raises:
        UserError: the file cannot be read in its format.
    """
    data = path.read_bytes()
    document, languages = read_either(path, data)
    original = reading_of(path.name, data)
    result.texts += len(document.units)
    result.not_translated += sum(one.kind != NO_LETTERS for one in not_translated(document))
    found = [] if document.filled({}) == data else ["without changes, the bytes differ"]
    found += [f"in capitals, {mistake}" for mistake in wrong_in_capitals(path, original, document, languages)]
    if path.suffix.lower() in OFFICE_SUFFIXES:
        arabic = parse_document(str(path), data, ("", "ar"))
        found += [f"from right to left, {mistake}" for mistake in wrong_in_capitals(path, original, arabic, languages)]
    result.wrong += [f"{path}: {mistake}" for mistake in found]
    for name, checked in result.filled.items():
        check(name, path, data, original, checked)


def wrong_in_capitals(
    path: Path, original: Reading | str, document: Document, languages: Sequence[str]
) -> Iterator[str]:
    """The failures of a document with every text in capitals."""
    texts = {n: unit for n, unit in enumerate(document.units) if unit.state is not UnitState.KEPT and unit.source}
    filled = document.filled({n: capitals(unit) for n, unit in texts.items()})
    if languages == ("", ""):
        again = len(parse_document(str(path), filled).units)
        if again != len(document.units):
            yield f"it has {again} texts, not {len(document.units)}"
    for kind, what in faults(original, reading_of(path.name, filled)):
        yield f"{kind}: {what}"


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
            try_file(path, result)
        except UserError as error:
            result.refused[general_reason(str(error), path)] += 1
        except Exception as error:
            result.wrong.append(f"{path}: {error!r}")
    return results


def speeds(folders: Sequence[Path]) -> dict[str, Speed]:
    """The speed of translating with the identity and of filling, by suffix; reading is not timed."""
    results: dict[str, Speed] = {}
    stand_in, markers = STAND_INS[IDENTITY]
    for path in documents(folders):
        try:
            document, _ = read_either(path, path.read_bytes())
            targets_of(translate(document, stand_in, markers))  # warms caches
        except UserError:
            continue
        result = results.setdefault(path.suffix.lower(), Speed())
        result.characters += sum(len(plain(one.source)) for one in document.units)
        for repeat in range(REPEATS):
            start = machine.now()
            document.filled(targets_of(translate(document, stand_in, markers)))
            result.seconds[repeat] += machine.now() - start
    return results


def all_sections(results: dict[str, Tried]) -> list[str]:
    """The page: a table of the files, one for each stand-in, refused files, and failures."""
    header = ["suffix", "files", "texts", "not translated", "refused", "wrong"]
    counts = {s: [r.files, r.texts, r.not_translated, r.refused.total(), len(r.wrong)] for s, r in results.items()}
    sections = [counts_table(header, counts)]
    if missing := missing_readers():
        sections.append(f"Readers that are not installed: {', '.join(missing)}.")
    for name in STAND_INS:
        filled = {suffix: result.filled[name] for suffix, result in results.items()}
        kinds = FAILURES if name == IDENTITY else (*FAILURES[:-1], *REPORTS)
        counts = {s: [r.files, r.units, *(r.counts[kind] for kind in kinds)] for s, r in filled.items()}
        sections += [f"## {name.capitalize()}", counts_table(["suffix", "files", "units", *kinds], counts)]
        if lines := [f"- {line}" for _, r in sorted(filled.items()) for line in r.examples]:
            sections += [f"### First failures, {name}", "\n".join(lines)]
    refused = [(n, suffix, reason) for suffix, r in results.items() for reason, n in r.refused.items()]
    if refused:
        rows = [[suffix, f"{n:,}", reason] for n, suffix, reason in sorted(refused, reverse=True)]
        sections += ["## Refused", machine.table(["suffix", "files", "reason"], rows)]
    if wrong_lines := [line for result in results.values() for line in result.wrong]:
        sections += ["## Wrong", "\n".join(f"- {line}" for line in wrong_lines)]
    return sections


def counts_table(header: Sequence[str], counts: dict[str, list[int]]) -> str:
    """A table with a row for each suffix, and their sums."""
    every = [*sorted(counts.items()), ("all", [sum(column) for column in zip(*counts.values(), strict=True)])]
    return machine.table(header, [[suffix, *(f"{count:,}" for count in row)] for suffix, row in every])


def speed_sections(results: dict[str, Speed]) -> list[str]:
    """A table of the speeds."""
    seconds: list[float] = [sum(column) for column in zip(*(r.seconds for r in results.values()), strict=True)]
    every = [*sorted(results.items()), ("all", Speed(sum(r.characters for r in results.values()), seconds))]
    rows = [[name, f"{r.characters:,}", f"{statistics.median(r.seconds):.3f}", f"{r.rate:,.0f}"] for name, r in every]
    return [machine.table(["suffix", "characters", f"seconds, median of {REPEATS}", "characters/s"], rows)]


def main() -> None:
    """Read all files, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--speed", action="store_true", help="only measure the speed of filling")
    machine.add_machine_options(parser)
    options = parser.parse_args()
    about = machine.description(machine.prepare(options))
    data: dict[str, Any]
    if options.speed:
        name, title, times = "filling-speed", "Speed of filling public files", speeds(options.folders)
        sections, data = speed_sections(times), {suffix: vars(one) for suffix, one in times.items()}
    else:
        name, title, results = "round-trips", "Round trips of public files", tried(options.folders)
        sections = all_sections(results)
        data = {s: vars(r) | {"filled": {n: vars(c) for n, c in r.filled.items()}} for s, r in results.items()}
    print("\n\n".join(sections))
    machine.write_result(machine.result_path(name), title, about, sections, data)


if __name__ == "__main__":
    main()

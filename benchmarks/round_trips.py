"""Round trips of public files through `headwise.localisation`, without changes and with all texts in capitals.

    python benchmarks/round_trips.py FOLDER [FOLDER ...]

Reads every file of a supported format (except `.txt`) below the folders. Without translations, the written file must
have the same bytes. With every text in capitals, the written file must have as many texts as before. A file that cannot
be read must give a one-line error. The page lists these files and all failures. Writes `results/round-trips_*`.
"""

import argparse
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import machine

from headwise.errors import UserError
from headwise.localisation import is_document
from headwise.localisation.reading import parse_document, read_document
from headwise.localisation.unit import Code, Parts, UnitState


@dataclass
class Tried:
    """Results of the files with one suffix."""

    files: int = 0
    texts: int = 0
    refused: list[str] = field(default_factory=list)
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


def wrong(path: Path) -> tuple[int, list[str]]:
    """The number of texts of a file, and the failures of its round trips.

    Raises:
        UserError: the file cannot be read in its format.
    """
    document = read_document(path)
    found = [] if document.filled({}) == path.read_bytes() else ["without changes, the bytes differ"]
    texts = {n: unit.source for n, unit in enumerate(document.units) if unit.state is not UnitState.KEPT}
    filled = document.filled({n: capitals(source) for n, source in texts.items() if source})
    again = len(parse_document(str(path), filled).units)
    found += [] if again == len(document.units) else [f"in capitals, it has {again} texts, not {len(document.units)}"]
    return len(document.units), found


def tried(folders: Sequence[Path]) -> dict[str, Tried]:
    """Results by suffix."""
    results: dict[str, Tried] = {}
    for path in documents(folders):
        result = results.setdefault(path.suffix.lower(), Tried())
        result.files += 1
        try:
            texts, mistakes = wrong(path)
        except UserError as error:
            result.refused.append(str(error))
        except Exception as error:
            result.wrong.append(f"{path}: {error!r}")
        else:
            result.texts += texts
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
    header = ["ending", "files", "texts", "refused", "wrong"]
    every = [(ending, [r.files, r.texts, len(r.refused), len(r.wrong)]) for ending, r in sorted(results.items())]
    every.append(("all", [sum(column) for column in zip(*(counts for _, counts in every), strict=True)]))
    rows = [[ending, *(f"{count:,}" for count in counts)] for ending, counts in every]
    sections = [machine.table(header, rows)]
    for title, lines in (
        ("Refused", [line for result in results.values() for line in result.refused]),
        ("Wrong", [line for result in results.values() for line in result.wrong]),
    ):
        sections += [f"## {title}", "\n".join(f"- {line}" for line in lines)] if lines else []
    print("\n\n".join(sections))
    data = {ending: vars(result) for ending, result in results.items()}
    machine.write_result(machine.result_path("round-trips"), "Round trips of public files", about, sections, data)


if __name__ == "__main__":
    main()

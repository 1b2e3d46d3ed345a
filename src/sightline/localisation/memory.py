"""Pairs to train on, out of the files that translators keep, and what was left out and why.

Units that somebody has translated become pairs; those that are fuzzy, untranslated or empty on a side do not. What both
sides hold alike (tags, placeholders, addresses) is put as marks (`carrying.py`), which a model learns to copy.
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sightline.data.cache import cache, partial
from sightline.data.content import digest
from sightline.data.corpus import CachedCopy
from sightline.data.rows import Pair
from sightline.errors import UserError
from sightline.localisation import MEMORIES, is_memory
from sightline.localisation.carrying import MARK, marked_pair
from sightline.localisation.placeholders import with_codes
from sightline.localisation.reading import read_document
from sightline.localisation.unit import Unit, UnitState, words


@dataclass
class MemoryReport:
    """What became of the units of a memory."""

    units: int = 0
    kept: int = 0
    marked: int = 0  # of those kept, pairs with codes as marks
    words: list[int] = field(default_factory=lambda: [0, 0])  # of source and target
    dropped: Counter[str] = field(default_factory=Counter)  # units by the reason they were left out for

    def __str__(self) -> str:
        why = ", ".join(f"{count:,} {reason}" for reason, count in self.dropped.most_common())
        left = f"; left out: {why}" if why else ""
        many = f"{self.words[0]:,} and {self.words[1]:,} words, {self.marked:,} with placeholders or tags"
        return f"{self.units:,} units: {self.kept:,} pairs ({many}){left}"


def pairs_of(paths: Sequence[str], languages: Sequence[str] = ("", "")) -> tuple[list[Pair], MemoryReport]:
    """The pairs of memories, each once.

    Raises:
        UserError: a file cannot be read; see `reading.read_document`.
    """
    report, seen = MemoryReport(), dict[Pair, None]()
    for path in paths:
        for unit in read_document(path, languages).units:
            report.units += 1
            if reason := _left_out(unit):
                report.dropped[reason] += 1
                continue
            pair, has_marks = _pair(unit)
            if pair in seen:
                report.dropped["repeats"] += 1
                continue
            seen[pair] = None
            report.kept += 1
            report.marked += has_marks
            report.words = [count + len(text.split()) for count, text in zip(report.words, pair, strict=True)]
    return list(seen), report


def _left_out(unit: Unit) -> str:
    """Why a unit is no pair; empty if it is one."""
    if unit.state is not UnitState.TRANSLATED:
        return unit.state.value
    return "" if words(unit.source).strip() and words(unit.target).strip() else "empty on a side"


def _pair(unit: Unit) -> tuple[Pair, bool]:
    """Both sides as one line each, and whether codes in them are marks."""
    source, target = (with_codes(parts, unit.markup) for parts in (unit.source, unit.target))
    both = marked_pair(source, target)
    texts = both or (words(source), words(target))
    return (_line(texts[0]), _line(texts[1])), MARK.search(texts[0]) is not None


def _line(text: str) -> str:
    return " ".join(text.split())


def memories_in(folder: str) -> Iterator[str]:
    """The memories of a folder and of those in it, in the order of their names."""
    return (str(path) for path in sorted(Path(folder).rglob("*")) if path.is_file() and is_memory(str(path)))


def as_tsv(paths: Sequence[str], languages: Sequence[str] = ("", "")) -> tuple[list[str], MemoryReport]:
    """The same files, but memories as one file of pairs, and what became of their units.

    Raises:
        UserError: there is no pair in them.
    """
    files = [file for path in paths for file in (memories_in(path) if os.path.isdir(path) else [path])]
    memories = [file for file in files if is_memory(file)]
    pairs, report = pairs_of(memories, languages)
    if not pairs:
        if files and not memories:
            return list(paths), report
        what = report if report.units else "no file of " + ", ".join(MEMORIES)
        raise UserError(f"{' '.join(paths)}: holds no pair to learn from ({what})")
    text = "".join(f"{source}\t{target}\n" for source, target in pairs).encode()
    with cache(None) as folder:
        made = folder / f"memory-{digest(pairs)[:16]}.tsv"
        if not (made.is_file() and made.stat().st_size == len(text)):  # else it has this content
            with partial(folder, made.name) as draft:
                draft.write_bytes(text)
                draft.replace(made)
    named = [path for path in paths if is_memory(path)]
    return [CachedCopy(str(made), named), *(file for file in files if not is_memory(file))], report

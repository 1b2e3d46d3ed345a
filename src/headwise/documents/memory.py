"""Training pairs from translation memories, with a report of the excluded units.

Translated units become pairs; units that are fuzzy, untranslated or empty on one side do not. Tags, placeholders and
addresses that occur on both sides become markers (`markers.py`), which the model learns to copy.
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headwise.documents import MEMORIES, is_memory
from headwise.documents.formats.tmx import TranslationMemory
from headwise.documents.markup.markers import MARKER, pair_with_markers
from headwise.documents.markup.placeholders import with_codes
from headwise.documents.reading import read_document
from headwise.documents.unit import Document, Unit, UnitState, without_inline_codes
from headwise.errors import UserError
from headwise.text.files.sources import CachedCopy, Pair, count_of
from headwise.text.language_codes import document_language
from headwise.text.prepared.cache import cache, draft_path
from headwise.text.prepared.file_hashes import short_hash


@dataclass
class MemoryReport:
    """Counts of the units of translation memories."""

    units: int = 0
    kept: int = 0
    with_markers: int = 0  # kept pairs that have markers
    words: list[int] = field(default_factory=lambda: [0, 0])  # of source and target
    dropped: Counter[str] = field(default_factory=Counter)  # excluded units by reason
    languages: tuple[str, str] = ("", "")  # those wanted, or else declared; "" = unknown

    def __str__(self) -> str:
        why = ", ".join(f"{count:,} {reason}" for reason, count in self.dropped.most_common())
        excluded = f"; excluded: {why}" if why else ""
        many = (
            f"{self.words[0]:,} and {count_of(self.words[1], 'word')}, {self.with_markers:,} with placeholders or tags"
        )
        return f"{count_of(self.units, 'unit')}: {count_of(self.kept, 'pair')} ({many}){excluded}"


def read_memories(paths: Sequence[str], languages: Sequence[str]) -> Iterator[tuple[Document, tuple[str, str]]]:
    """Memories of the same languages, each with what is known of them so far; those that a file declares hold for the
    files behind it.

    Raises:
        UserError: see `reading.read_document`.
    """
    source, target = languages
    for path in paths:
        document = read_document(path, (source, target))
        if isinstance(document, TranslationMemory) and not document.target_languages:
            raise UserError(f"{path}: no text in '{target}'; choose files and languages that agree")
        source, target = (
            known or next((document_language(one.code) for one in declared), "")
            for known, declared in ((source, document.source_languages), (target, document.target_languages))
        )
        yield document, (source, target)


def read_memory_pairs(paths: Sequence[str], languages: Sequence[str] = ("", "")) -> tuple[list[Pair], MemoryReport]:
    """The distinct pairs of translation memories.

    Raises:
        UserError: see `reading.read_document`.
    """
    report, seen = MemoryReport(languages=(languages[0], languages[1])), dict[Pair, None]()
    for document, report.languages in read_memories(paths, languages):
        for unit in document.units:
            report.units += 1
            if reason := exclusion_reason(unit):
                report.dropped[reason] += 1
                continue
            pair, has_markers = _pair(unit)
            if pair in seen:
                report.dropped["repeated"] += 1
                continue
            seen[pair] = None
            report.kept += 1
            report.with_markers += has_markers
            report.words = [count + len(text.split()) for count, text in zip(report.words, pair, strict=True)]
    return list(seen), report


def exclusion_reason(unit: Unit) -> str:
    """Why a unit is excluded; "" if it is not."""
    if unit.state is not UnitState.TRANSLATED:
        return unit.state.value
    return (
        ""
        if without_inline_codes(unit.source).strip() and without_inline_codes(unit.target).strip()
        else "empty on one side"
    )


def _pair(unit: Unit) -> tuple[Pair, bool]:
    """Both sides, one line each, and whether they have markers."""
    source, target = (with_codes(parts, unit.markup) for parts in (unit.source, unit.target))
    marked = pair_with_markers(source, target)
    texts = marked or (without_inline_codes(source), without_inline_codes(target))
    return (_line(texts[0]), _line(texts[1])), MARKER.search(texts[0]) is not None


def _line(text: str) -> str:
    return " ".join(text.split())


def memory_files(folder: str) -> Iterator[str]:
    """The translation memories of a folder and its subfolders, sorted by name."""
    return (str(path) for path in sorted(Path(folder).rglob("*")) if path.is_file() and is_memory(str(path)))


def memories_as_tsv(paths: Sequence[str], languages: Sequence[str] = ("", "")) -> tuple[list[str], MemoryReport]:
    """Replace the memories among some files by one cached .tsv file of pairs; with a report.

    Raises:
        UserError: they have no pairs.
    """
    files = [file for path in paths for file in (memory_files(path) if os.path.isdir(path) else [path])]
    memories = [file for file in files if is_memory(file)]
    pairs, report = read_memory_pairs(memories, languages)
    if not pairs:
        if files and not memories:
            return list(paths), report
        if not files:
            what = f"is a folder without a file of {', '.join(MEMORIES)}"
            raise UserError(f"{' '.join(paths)}: {what}; name a file of pairs")
        raise UserError(f"{' '.join(paths)}: has no translated pairs ({report})")
    text = "".join(f"{source}\t{target}\n" for source, target in pairs).encode()
    with cache(None) as folder:
        made = folder / f"memory-{short_hash(pairs)[:16]}.tsv"
        if not (made.is_file() and made.read_bytes() == text):
            with draft_path(folder, made.name) as draft:
                draft.write_bytes(text)
                draft.replace(made)
    named = [path for path in paths if is_memory(path)]
    return [CachedCopy(str(made), named), *(file for file in files if not is_memory(file))], report

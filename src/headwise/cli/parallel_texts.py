"""Parallel texts on a command line: sources, translations and references, which belong together line by line.

Files are those that `headwise train` takes, read as it reads them: lines of text, pairs (`.tsv`, `.jsonl`, `hf:`), and
translation memories (`.po`, `.tmx`, `.xliff`, or folders of them). Where one side is needed, the option determines it.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from headwise.documents import is_memory
from headwise.documents.memory import memories_as_tsv
from headwise.errors import UserError
from headwise.text.files.corpus import Corpus, read_lines, read_pairs, stands_alone
from headwise.text.files.file_checks import PAIRS, check_file_language, check_files, declaration_warnings, parse_pairs
from headwise.text.files.sources import STANDARD_INPUT, count_of, display_name
from headwise.text.language_codes import LanguagePair
from headwise.text.prepared.prepared import spool


@dataclass(frozen=True)
class NamedText:
    """One side of a text, as an option names it."""

    option: str
    path: str
    is_target: bool  # which side of a file of pairs is used


def source_text(path: str, option: str = "--source") -> NamedText:
    """A text to translate, or that was translated."""
    return NamedText(option, path, is_target=False)


def target_text(path: str, option: str) -> NamedText:
    """A translation."""
    return NamedText(option, path, is_target=True)


def holds_pairs(path: str) -> bool:
    """Whether a file holds both sides, by its name."""
    return path != STANDARD_INPUT and (stands_alone(path) or is_memory(path))


def texts_to_score(
    source: str, references: Sequence[str], options: tuple[str, str] = ("--source", "--reference")
) -> list[NamedText]:
    """A source and its references, by default the target side of the source file."""
    option, name = options
    if not references and not holds_pairs(source):
        raise UserError(f"{name} is required: the file or files to compare translations with")
    others = [target_text(path, name) for path in references] or [target_text(source, option)]
    return [source_text(source, option), *others]


def parallel_texts(named: Sequence[NamedText], languages: Sequence[str] = ("", "")) -> list[list[str]]:
    """The lines of texts that must have as many lines each.

    Args:
        languages: codes of source and target, those to read from a translation memory with several; "" = unknown.

    Raises:
        UserError: a file cannot be read or has the name of another language, they have different numbers of lines, or
            two files of pairs different sources.
    """
    read: dict[str, tuple[list[str], ...]] = {}
    for one in named:
        if one.path not in read:
            read[one.path] = _sides(one, languages)
    columns = [read[one.path][one.is_target and len(read[one.path]) > 1] for one in named]
    for one, column in zip(named, columns, strict=True):
        if len(column) != len(columns[0]):
            counts = f"{_name(named[0])} has {count_of(len(columns[0]), 'line')} but {_name(one)} has {len(column):,}"
            raise UserError(f"{counts}; line n must belong to line n")
    first, *others = [(path, sides[0]) for path, sides in read.items() if len(sides) > 1] or [("", [])]
    for path, sources in others:
        for number, (one, other) in enumerate(zip(first[1], sources, strict=True), start=1):
            if one != other:
                where = f"pair {number} of {display_name(first[0])} and of {display_name(path)}"
                raise UserError(f"{where} have different sources; name files of the same pairs in the same order")
    return columns


def _name(text: NamedText) -> str:
    return display_name(text.path)


def _sides(text: NamedText, languages: Sequence[str]) -> tuple[list[str], ...]:
    """The lines of a file, or both sides of its pairs."""
    if not holds_pairs(text.path):
        check_files({text.option: [text.path]})
        check_file_language(text.option, text.path, languages[text.is_target], text.is_target)
        return (list(read_lines(text.path)),)
    sources, targets = zip(*read_pairs(training_corpora(text.option, [text.path], languages)), strict=True)
    return list(sources), list(targets)


def training_corpora(option: str, paths: Sequence[str], languages: Sequence[str]) -> list[Corpus]:
    """The corpora of files that `headwise train` would take, with warnings about headers.

    Args:
        languages: as for `parallel_texts`.

    Raises:
        UserError: a file cannot be read, or its name or a header names another language.
    """
    corpora, found = checked_corpora(option, paths, languages)
    for corpus in corpora:
        for warning in declaration_warnings(option, corpus, list(islice(read_pairs([corpus]), PAIRS)), found):
            print(f"headwise: warning: {warning}", file=sys.stderr)
    return corpora


def checked_corpora(option: str, paths: Sequence[str], languages: Sequence[str]) -> tuple[list[Corpus], LanguagePair]:
    """`training_corpora` without warnings, and the languages: those given, or else those of translation memories."""
    files, report = memories_as_tsv(paths, languages)
    if report.units:
        print(f"headwise: {option} {' '.join(paths)}: {report}", file=sys.stderr)
    check_files({option: files})
    return spool(parse_pairs(option, files, report.languages)), report.languages

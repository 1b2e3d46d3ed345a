"""Documents that `headwise translate` fills unit by unit: catalogues, translation memories, other formats."""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import tee
from typing import Any

from headwise.cli.files import output
from headwise.cli.loading import translating_model
from headwise.cli.options import decode_overrides, languages_of
from headwise.documents import is_document
from headwise.documents.fill import TranslatedUnit, targets_of, translate_units
from headwise.documents.fill_report import count_units, count_warnings, report_rows
from headwise.documents.formats.unsupported_types import check_file_name
from headwise.documents.markup.placeholders import with_codes
from headwise.documents.not_translated import not_translated, not_translated_summary
from headwise.documents.pivot import PivotTranslator
from headwise.documents.reading import check_languages, read_document
from headwise.documents.segment_memory import SegmentMemory, read_segment_memory
from headwise.documents.unit import Document, Unit, plain, strings_only
from headwise.errors import UserError
from headwise.models.translation.target_language import (
    TAGS,
    language_arguments,
    needs_target,
    tagged_targets,
)
from headwise.runtime.search.translator import Translation
from headwise.text.files.sources import count_of


def fill_document(options: argparse.Namespace) -> None:
    """Translate the untranslated units; the rest of the file stays as it is."""
    is_plain = not is_document(options.input)
    if is_plain:
        check_file_name(options.input)
    document = read_document(options.input, languages_of(options), ".txt" if is_plain else "")
    model = translating_model(options, languages_required=False)
    check_languages(options.input, document, languages_of(options))
    model = _for_languages(model, document, options)
    language = options.source_language or options.languages[0]
    memory = requested_memory(options)
    overrides = decode_overrides(options, model.decode_config)
    filled = translate_units(document, model, language, memory=memory, **overrides)
    data, skipped = document.filled(targets_of(filled)), not_translated(document)
    with output(options.output) as file:
        file.buffer.write(data)
    if options.report:
        with output(options.report, "--report") as file:
            rows = report_rows(filled, skipped, memory.best_match if memory else None)
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    for line in (fill_summary(len(document.units), filled), not_translated_summary(skipped)):
        print(line, end="\n" * bool(line), file=sys.stderr)
    if "glossary" in overrides:
        print(_kept_terms(overrides["glossary"], filled), file=sys.stderr)


def _kept_terms(glossary: Any, filled: Iterable[TranslatedUnit]) -> str:
    """The summary of a `CountedGlossary` for whole units: sentences may have been translated more than once."""
    counted = type(glossary)(glossary.terms)
    for one in filled:
        if one.target:
            counted.note(" ".join(map(strings_only, one.segments)), plain(one.target))
    return counted.summary()


def _for_languages(model: Any, document: Document, options: argparse.Namespace) -> Any:
    """The model for the languages of the command line, or else those that the document declares.

    Raises:
        UserError: they contradict each other, the model lacks them, or it needs to know them.
    """
    last, named = model.second if options.then else model, options.target_language or options.languages[1]
    declared, languages = [one.code for one in document.target_languages], tagged_targets(last)
    has_tags = len(languages) > 1 and any(map(_has_tag, document.units))
    if not hasattr(last, "between"):
        return model
    if declared and not named and not has_tags and needs_target(last):
        try:
            return _with_last(model, _between(last, declared[0], options), options)
        except UserError as error:
            raise UserError(f"{options.input}: its translations are in '{declared[0]}': {error}") from error
    if len(languages) > 1 and not named and not has_tags:
        known = ", ".join(languages[:20])
        raise UserError(f"{options.input}: which target language? Add --target-language: the model has {known}")
    return _with_last(model, _between(last, named, options), options)


def _with_last(model: Any, last: Any, options: argparse.Namespace) -> Any:
    """The model with another one in the place of the last."""
    return PivotTranslator(model.first, last) if options.then else last


def _between(model: Any, target: str, options: argparse.Namespace) -> Any:
    """The model for this target language: a code of the model if `--target-language` gives it."""
    given = {"source_language": options.source_language, "target_language": target}
    if target and not options.target_language:
        given = language_arguments(model, options.source_language or options.languages[0], target)
    return model.between(**given)


def _has_tag(unit: Unit) -> bool:
    """Whether a text chooses its target language itself, such as `<2de> A dog`."""
    return plain(unit.source).startswith(TAGS)


def requested_memory(options: argparse.Namespace) -> SegmentMemory | None:
    """The translation memory of `--memory`."""
    return _memory(tuple(options.memory), languages_of(options)) if options.memory else None


@cache
def _memory(paths: tuple[str, ...], languages: tuple[str, str]) -> SegmentMemory:
    return read_segment_memory(paths, languages)


def recalled_or_translated(
    memory: SegmentMemory, translate: Callable[[Iterable[str]], Iterable[Translation]], lines: Iterable[str]
) -> Iterator[Translation]:
    """The translations of lines, from the memory if it has them."""
    lines, again = tee(lines)
    rest = iter(translate(line for line in again if _recalled(memory, line) is None))
    for line in lines:
        text = _recalled(memory, line)
        yield next(rest) if text is None else Translation(text, parts=1)


def _recalled(memory: SegmentMemory, line: str) -> str | None:
    parts = memory.recall(with_codes((line,)))
    return " ".join(plain(parts).split()) if parts else None


def fill_summary(units: int, filled: list[TranslatedUnit]) -> str:
    """A summary of the translated texts, with the quality flags for a reviewer."""
    counts = count_units(units, filled)
    lines = "".join(f"\n  {count:>6,}  {warning}" for warning, count in count_warnings(filled).items())
    return (
        f"{count_of(units, 'unit')}: {counts['translated']:,} translated, {counts['left_open']:,} left open, "
        f"{counts['kept']:,} kept unchanged{lines}"
    )

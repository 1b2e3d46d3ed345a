"""Files of the server that belong to a language pair: translation memories and glossaries.

The pair is in the file's name (`NAME.en-de.tmx`), or it is the only pair that the server translates, or a .tmx file has
segments in both languages.
"""

import re
from collections.abc import Sequence
from pathlib import PurePath

from headwise.documents.glossary.files import read_glossary
from headwise.documents.glossary.terms import Glossary, Term
from headwise.documents.segment_memory import SegmentMemory, read_segment_memory
from headwise.errors import UserError
from headwise.text.language_codes import LanguagePair, base_language

NAMED_PAIR = re.compile(r"\.([A-Za-z]{2,3}(?:_[A-Za-z]+)*)-([A-Za-z]{2,3}(?:_[A-Za-z]+)*)\.\w+$")


def named_pairs(flag: str, path: str, pairs: Sequence[LanguagePair]) -> list[LanguagePair]:
    """The pairs of a file by its name, or the only one of the server; empty if neither decides.

    >>> named_pairs("--memory", "a/terms.en-de.tsv", [("en", "de"), ("de", "en")])
    [('en', 'de')]

    Raises:
        UserError: the server does not translate the pair of the name.
    """
    named = NAMED_PAIR.search(PurePath(path).name)
    if not named:
        return list(pairs) if len(pairs) == 1 else []
    wanted = named[1], named[2]
    found = [pair for pair in pairs if pair == wanted] or [pair for pair in pairs if _base(pair) == _base(wanted)]
    if not found:
        raise UserError(f"{flag} {path}: no model translates {'-'.join(wanted)}; rename the file, or leave it out")
    return found


def read_memories(paths: Sequence[str], pairs: Sequence[LanguagePair]) -> dict[LanguagePair, SegmentMemory]:
    """The translation memory of each pair.

    Raises:
        UserError: an invalid file, or one whose pair is unknown or has no segments in it.
    """
    files: dict[LanguagePair, list[str]] = {}
    for path in paths:
        for pair in named_pairs("--memory", path, pairs) or _pairs_inside(path, pairs):
            files.setdefault(pair, []).append(path)
    return {pair: _read(several, pair) for pair, several in files.items()}


def read_glossaries(paths: Sequence[str], pairs: Sequence[LanguagePair]) -> dict[LanguagePair, Glossary]:
    """The glossary of each pair.

    Raises:
        UserError: an invalid file, one whose pair is unknown, or two translations of a term.
    """
    terms: dict[LanguagePair, list[Term]] = {}
    for path in paths:
        found = named_pairs("--glossary", path, pairs)
        if not found:
            raise UserError(f"--glossary {path}: its language pair is unknown; add it to the name: NAME.en-de.tsv")
        for pair in found:
            terms.setdefault(pair, []).extend(read_glossary(path, _base(pair)))
    return {pair: Glossary(several) for pair, several in terms.items()}


def _pairs_inside(path: str, pairs: Sequence[LanguagePair]) -> list[LanguagePair]:
    """The pairs whose languages are both in a .tmx file."""
    found = [pair for pair in pairs if path.lower().endswith(".tmx") and _has_segments(path, pair)]
    if not found:
        raise UserError(f"--memory {path}: its language pair is unknown; add it to the name, such as NAME.en-de.tmx")
    return found


def _has_segments(path: str, pair: LanguagePair) -> bool:
    try:
        return len(_read([path], pair)) > 0
    except UserError as error:
        if "no text in" in str(error):
            return False
        raise


def _read(paths: Sequence[str], pair: LanguagePair) -> SegmentMemory:
    return read_segment_memory(paths, _base(pair))


def _base(pair: LanguagePair) -> LanguagePair:
    return base_language(pair[0]), base_language(pair[1])

"""Lists the texts of a document that are never translated, so that nobody takes a file for completely translated.

See `fill.py` for units that could not be translated, which have a warning.
"""

from collections import Counter
from collections.abc import Sequence

from headwise.documents.unit import Document, Skipped, UnitState, plain

MAX_TEXT = 80  # characters of a text in a report
NO_LETTERS = "text without letters"


def not_translated(document: Document) -> list[Skipped]:
    """The texts that are in no unit, and the units that are not for translation, by line."""
    kept = [
        Skipped(unit.kept or NO_LETTERS, unit.line, beginning_of(plain(unit.source)))
        for unit in document.units
        if unit.state is UnitState.KEPT
    ]
    return sorted([*document.skipped, *kept], key=lambda one: one.line)


def beginning_of(text: str) -> str:
    """The beginning of a text, in one line.

    >>> beginning_of("a  b\\n c"), len(beginning_of("x" * 1000))
    ('a b c', 80)
    """
    text = " ".join(text[: 4 * MAX_TEXT].split())
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 3] + "..."


def count_kinds(skipped: Sequence[Skipped]) -> dict[str, int]:
    """The number of texts of each kind, the most frequent first."""
    return dict(Counter(one.kind for one in skipped).most_common())


def not_translated_summary(skipped: Sequence[Skipped]) -> str:
    """One line with the number of each kind and its first line; "" if there are none.

    >>> not_translated_summary([Skipped("code block", 3), Skipped("formula", 5), Skipped("code block", 9)])
    'not translated: code block: 2 (first in line 3); formula: 1 (line 5)'
    """
    first = {one.kind: one.line for one in reversed(skipped)}
    kinds = [
        f"{kind}: {count:,} ({'first in ' * (count > 1)}line {first[kind]:,})"
        for kind, count in count_kinds(skipped).items()
    ]
    return f"not translated: {'; '.join(kinds)}" if kinds else ""

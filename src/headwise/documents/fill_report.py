"""The report on a translated document for its reviewer: counts, and a row for each text."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from headwise.documents.fill import TranslatedUnit, memory_matches
from headwise.documents.not_translated import count_kinds
from headwise.documents.segment_memory import BestMatch, match_values
from headwise.documents.unit import Skipped, plain

MOST_SKIPPED = 1000  # rows of a kind of text that is never translated


def report_rows(
    filled: Sequence[TranslatedUnit], skipped: Sequence[Skipped], best_match: BestMatch | None = None
) -> list[dict[str, Any]]:
    """The translated units, those with most warnings and the least probable first; then texts never translated.

    With `best_match`, of a translation memory, each unit has its matches.
    """
    ranked = sorted(filled, key=lambda one: (-len(one.warnings), one.log_prob))
    return [*(_row(one, best_match) for one in ranked), *map(_skipped_row, skipped)]


def _row(one: TranslatedUnit, best_match: BestMatch | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "line": one.unit.line,
        "source": plain(one.unit.source),
        "translation": plain(one.target),
        "log_prob": round(one.log_prob, 4),
        "warnings": list(one.warnings),
    }
    if best_match:
        row["memory"] = [match_values(match) for match in memory_matches(one, best_match)]
    return row


def _skipped_row(one: Skipped) -> dict[str, Any]:
    return {"line": one.line, "source": one.text, "not_translated": one.kind}


def count_units(units: int, filled: Sequence[TranslatedUnit]) -> dict[str, int]:
    """The units of a document that were translated, that have no translation, and that were kept as they were."""
    done = sum(bool(one.target) for one in filled)
    return {"all": units, "translated": done, "left_open": len(filled) - done, "kept": units - len(filled)}


def count_warnings(filled: Sequence[TranslatedUnit]) -> dict[str, int]:
    """The number of each warning, the most frequent first."""
    return dict(Counter(warning for one in filled for warning in one.warnings).most_common())


def fill_report(
    units: int, filled: Sequence[TranslatedUnit], skipped: Sequence[Skipped], best_match: BestMatch | None = None
) -> dict[str, Any]:
    """The whole report as a JSON value; `best_match` as for `report_rows`.

    It has rows for the first texts of each kind that are never translated; all are counted.
    """
    rows, of_kind = [], Counter[str]()
    for one in skipped:
        of_kind[one.kind] += 1
        if of_kind[one.kind] <= MOST_SKIPPED:
            rows.append(one)
    return {
        "units": count_units(units, filled),
        "warnings": count_warnings(filled),
        "not_translated": count_kinds(skipped),
        "texts": report_rows(filled, rows, best_match),
    }

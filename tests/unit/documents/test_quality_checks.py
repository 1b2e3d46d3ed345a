"""Flags of a translation: most wrong ones get one, few right ones do."""

from pathlib import Path

import pytest

from headwise.documents.markup.placeholders import with_codes
from headwise.documents.quality_checks import (
    COPIED,
    EMPTY,
    LONG,
    NUMBERS,
    PARTLY,
    QUESTION,
    REPEATS,
    ROW,
    SHORT,
    STRANGE,
    UNPAIRED,
    quality_warnings,
)

UNITS = Path(__file__).resolve().parents[3] / "benchmarks" / "flagged_units.tsv"


def flags(source: str, target: str) -> tuple[str, ...]:
    return quality_warnings(with_codes((source,)), with_codes((target,)), -0.1)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("He lowers his head.", "L'est-tete ( ()))))))))", (ROW, UNPAIRED)),
        ("%d files were opened.", "%d.", (EMPTY, SHORT)),
        ("Nothing happened at all today", "Nichts", (SHORT,)),
        ("A dog.", "Ein Hund, der in der Sonne liegt und schläft.", (LONG,)),
        ("In the garden", "Im Garten im Garten", (REPEATS,)),
        ("The garden smells of lavender.", "Der Garten riecht nach Lavendelvendelvendelvendel.", ()),
        ("The garden smells of lavender.", "Der Garten riecht nach Lavendededede.", (ROW,)),
        ("The old boat drifted away.", "The old boat drifted away.", (COPIED,)),
        ("Too many requests, try again later.", "Too many requests, try again nachher.", (PARTLY,)),
        ("It opens at 9.", "Es öffnet.", (NUMBERS,)),
        ("It opens at 9.", "Es öffnet um 8.", (NUMBERS,)),
        ("It opens at nine.", "Es öffnet um 9.", ()),
        ("1,250 of 2 000", "1.250 von 2\u202f000", ()),
        ("\uff12 cats", "2 Katzen", ()),
        ("Is it open?", "Ist es offen.", (QUESTION,)),
        ("Is it open?", "開いていますか。", ()),
        ("Is it open?", "Είναι ανοιχτό;", ()),
        ("He said \"yes\".", "Er sagte \"ja.", (UNPAIRED,)),
        ("He said \"yes\".", "Er sagte „ja“.", ()),
        ("a) the seller", "a) der Verkäufer", ()),
        ("wait...", "warten....", (ROW,)),
        ("The rest", "Der \ufffd Rest", (STRANGE,)),
    ],
)  # fmt: skip
def test_each_flag_has_its_reason(source: str, target: str, expected: tuple[str, ...]) -> None:
    assert flags(source, target) == expected


def test_most_wrong_translations_are_flagged_and_few_right_ones() -> None:
    rows = [line.split("\t") for line in UNITS.read_text(encoding="utf-8").splitlines()]
    flagged = {kind: sum(bool(flags(*pair)) for label, *pair in rows if label == kind) for kind in ("right", "wrong")}
    assert len(rows) == 200
    assert flagged["wrong"] >= 68  # of 100, of which 25 read well and say something else
    assert flagged["right"] <= 6  # of 100

"""The report on a filled document."""

from collections import Counter

from headwise.localisation.fill_report import MOST_SKIPPED, fill_report
from headwise.localisation.unit import Skipped


def test_texts_that_are_never_translated_are_counted_and_the_first_of_each_kind_listed() -> None:
    kinds = {"code block": MOST_SKIPPED + 5, "formula": 2}
    skipped = [Skipped(kind, line) for kind, number in kinds.items() for line in range(1, number + 1)]
    report = fill_report(0, [], skipped)
    assert report["not_translated"] == kinds
    listed = Counter(row["not_translated"] for row in report["texts"])
    assert listed == {"code block": MOST_SKIPPED, "formula": 2} and report["texts"][0]["line"] == 1

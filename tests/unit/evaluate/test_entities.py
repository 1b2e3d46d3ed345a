"""Entities of tagged words, and their scores, as CoNLL's script and seqeval count them; examples computed by hand."""

import random

import pytest

from headwise.evaluate.classes import ClassCount
from headwise.evaluate.entities import entities, tag_report


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O O", []),
        ("B-PER I-PER O B-LOC", [("PER", 0, 2), ("LOC", 3, 4)]),  # IOB2
        ("I-PER I-PER O I-LOC B-LOC", [("PER", 0, 2), ("LOC", 3, 4), ("LOC", 4, 5)]),  # IOB1
        ("B-PER I-LOC", [("PER", 0, 1), ("LOC", 1, 2)]),  # another kind is another entity
        ("B-PER B-PER", [("PER", 0, 1), ("PER", 1, 2)]),
        ("B-PER I-PER E-PER S-LOC S-LOC", [("PER", 0, 3), ("LOC", 3, 4), ("LOC", 4, 5)]),  # IOBES
        ("E-PER I-PER S-PER E-PER", [("PER", 0, 1), ("PER", 1, 2), ("PER", 2, 3), ("PER", 3, 4)]),
        ("B I O B", [("", 0, 2), ("", 3, 4)]),  # chunks of one kind
        ("B-work-of-art I-work-of-art", [("work-of-art", 0, 2)]),
        ("PER PER O PER LOC", [("PER", 0, 2), ("PER", 3, 4), ("LOC", 4, 5)]),  # plain tags
        ("ORG B-x O-k", [("ORG", 0, 1), ("x", 1, 2), ("O-k", 2, 3)]),
        ("", []),
    ],
)
def test_entities(tags: str, expected: list[tuple[str, int, int]]) -> None:
    assert entities(tags.split()) == expected


def test_the_scores_of_seqevals_readme() -> None:
    """0.50 in all: MISC begins too early, PER is right."""
    true = [["O", "O", "O", "B-MISC", "I-MISC", "I-MISC", "O"], ["B-PER", "I-PER", "O"]]
    found = [["O", "O", "B-MISC", "I-MISC", "I-MISC", "I-MISC", "O"], ["B-PER", "I-PER", "O"]]
    report = tag_report(true, found)
    assert report.kinds == {"MISC": ClassCount(1, 1, 0), "PER": ClassCount(1, 1, 1)}
    assert report.all.f1 == report.all.precision == report.all.recall == 0.5
    assert report.accuracy == 0.8
    assert report.as_json()["f1"] == 0.5 and report.as_json()["words"] == 10


def test_scores_by_hand() -> None:
    """Three entities, of which one is found whole; of four that are said."""
    true = [["B-PER", "I-PER", "O", "B-LOC", "B-LOC"]]
    report = tag_report(true, [["B-PER", "O", "B-LOC", "B-LOC", "I-LOC"]])
    assert report.all == ClassCount(3, 3, 0) and report.all.f1 == 0.0
    report = tag_report(true, [["B-PER", "I-PER", "B-PER", "B-LOC", "I-LOC"]])
    assert report.all == ClassCount(3, 3, 1) and report.all.f1 == pytest.approx(1 / 3)
    assert "entity F1 33.33%, precision 33.33%, recall 33.33%; accuracy of 5 words 60.00%" in report.render()


def test_nothing_to_find() -> None:
    report = tag_report([["O", "O"]], [["O", "O"]])
    assert (report.all.f1, report.accuracy, report.kinds) == (0.0, 1.0, {})
    assert "entity" in report.render()


def test_seqeval_says_the_same() -> None:
    """On any tags with prefixes, sensible or not."""
    metrics = pytest.importorskip("seqeval.metrics")
    generator = random.Random(0)
    tags = ["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in ("X", "Y"))]
    for _ in range(200):
        true, found = ([[generator.choice(tags) for _ in range(9)] for _ in range(3)] for _ in range(2))
        report = tag_report(true, found)
        assert report.all.f1 == pytest.approx(metrics.f1_score(true, found, zero_division=0))
        assert report.accuracy == pytest.approx(metrics.accuracy_score(true, found))

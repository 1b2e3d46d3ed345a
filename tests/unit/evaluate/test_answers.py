"""Exact match and F1 as SQuAD's script computes them; every example is computed by hand from its rules."""

import pytest

from headwise.evaluate.answers import answer_report, exact_match, f1_of_words, normalize_answer


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Rhine", "rhine"),
        ("a  cat,\tan owl\nthe END.", "cat owl end"),
        ("U.S.A.", "usa"),
        ("theatre another", "theatre another"),  # whole words alone are articles
        ("the-the", "thethe"),  # punctuation goes first
        ("1,000.50", "100050"),
        ("\u201cquoted\u201d", "\u201cquoted\u201d"),  # of punctuation what ASCII has
        ("The", ""),
    ],
)
def test_what_is_compared(text: str, expected: str) -> None:
    assert normalize_answer(text) == expected


@pytest.mark.parametrize(
    ("answer", "gold", "exact", "f1"),
    [
        ("The Denver Broncos!", "denver broncos", True, 1.0),
        ("Broncos", "Denver Broncos", False, 2 / 3),  # precision 1, recall 1/2
        ("in the city of Bern", "Bern", False, 0.4),  # in, city, of, bern: 1/4 and 1
        ("bern bern", "bern", False, 2 / 3),  # a word counts as often as it stands there
        ("Basel", "Bern", False, 0.0),
        ("", "Bern", False, 0.0),
        ("the", "", True, 1.0),
    ],
)
def test_scores(answer: str, gold: str, exact: bool, f1: float) -> None:
    assert exact_match(answer, gold) is exact
    assert f1_of_words(answer, gold) == pytest.approx(f1)


def test_the_best_of_several_answers_counts() -> None:
    report = answer_report(["river Rhine", "Bern"], [["the Rhine", "River Rhine", "x"], ["Basel", "Bern city"]])
    assert (report.exact_match, report.questions, report.without) == (0.5, 2, 0)
    assert report.as_json() == {"exact_match": 0.5, "f1": pytest.approx(5 / 6), "questions": 2}
    assert report.render() == "exact match 50.00%, F1 83.33% over 2 questions"


def test_questions_without_an_answer() -> None:
    """To say nothing is right there and nowhere else; an answer that is an article only is none, as in the script."""
    report = answer_report(["", "Bern", "", "x"], [[], [], ["Basel"], ["the"]])
    assert (report.exact_match, report.f1, report.without) == (0.25, 0.25, 2)
    assert (report.f1_with, report.right_without) == (0.0, 0.5)
    assert "50.00% of 2 questions without one are left unanswered" in report.render()

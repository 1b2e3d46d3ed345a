"""Every exercise of the tutorial: its solution passes, no answer does not, and a wrong one gets a hint."""

from math import comb
from typing import Any

import numpy as np
import pytest

from headwise.errors import UserError
from headwise.lab.tutorial import ALL, VARIABLE, best_guess, check, settings, show_source, solution


@pytest.mark.parametrize("number", ALL)
def test_the_solution_is_right(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(ALL[number].solution, names)
    assert check(number, names["answer"]), capsys.readouterr().out
    assert capsys.readouterr().out == f"Exercise {number}: right.\n"


@pytest.mark.parametrize("number", ALL)
@pytest.mark.parametrize("answer", [None, 0, "", {}, lambda *given: None])
def test_nothing_is_wrong_in_one_line(number: str, answer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert not check(number, answer)
    printed = capsys.readouterr().out
    assert printed.startswith(f"Exercise {number}: not yet. ") and printed.count("\n") == 1


def test_dots_are_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert not check("1.1", ...)
    assert "no answer yet" in capsys.readouterr().out


def test_a_solution_is_printed_with_question_and_explanation(capsys: pytest.CaptureFixture[str]) -> None:
    solution("1.2")
    printed, exercise = capsys.readouterr().out, ALL["1.2"]
    assert exercise.question in printed and exercise.solution.strip() in printed
    explanation = printed.rsplit("\n\n", 1)[1].splitlines()
    assert " ".join(explanation) == exercise.explanation.strip() and max(map(len, explanation)) <= 88


def test_an_unknown_exercise_is_an_error() -> None:
    with pytest.raises(UserError, match=r"unknown exercise '1\.9'"):
        check("1.9", ...)


@pytest.mark.parametrize(("size", "updates"), [("", 600), ("full", 600), ("small", 4)])
def test_the_size_comes_from_the_environment(size: str, updates: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, size)
    assert settings(full={"updates": 600}, small={"updates": 4}).updates == updates


def test_sorted_symbols_can_be_guessed_without_the_source() -> None:
    """The chance levels of chapters 4 to 6: eight sorted symbols of ten."""
    symbols = np.arange(10)
    at_most = np.array([[sum(comb(8, k) * ((s + 1) / 10) ** k * (1 - (s + 1) / 10) ** (8 - k) for k in range(i + 1, 9))
                         for s in symbols] for i in range(8)])  # fmt: skip
    exact = np.diff(at_most, prepend=0.0).max(1).mean()  # P(the i-th smallest is s), and its largest value for each i
    assert exact == pytest.approx(0.34, abs=0.005)
    tgt = np.sort(np.random.default_rng(0).integers(0, 10, (10_000, 8)))
    before = np.concatenate([np.full((len(tgt), 1), -1), tgt[:, :-1]], 1)
    places = np.broadcast_to(np.arange(8), tgt.shape)
    answers, columns = tgt.ravel().tolist(), [each.ravel().tolist() for each in (places, before)]
    assert best_guess(answers, columns[0]) == pytest.approx(exact, abs=0.01)
    assert best_guess(answers, *columns) == pytest.approx(0.46, abs=0.01)


def test_unknown_sizes_and_one_sided_settings_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="of one size only: width"):
        settings(full={"updates": 600, "width": 8}, small={"updates": 4})
    monkeypatch.setenv(VARIABLE, "tiny")
    with pytest.raises(UserError, match=f"unknown size in {VARIABLE} 'tiny'"):
        settings(full={}, small={})


def test_source_is_shown_as_code() -> None:
    shown = show_source(show_source)
    assert shown._repr_markdown_().startswith("```python\n# headwise/lab/tutorial/__init__.py, line ")
    assert "def show_source(code" in repr(shown)

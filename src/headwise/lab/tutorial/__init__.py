"""Tools for the chapters of the tutorial (`docs/tutorial/`): checked exercises, the library's source, sizes.

A chapter is a text notebook: each fence with the language `python` is a cell. It begins with

    from headwise.lab.tutorial import best_guess, check, settings, show_source, solution

    size = settings(full={"updates": 600}, small={"updates": 4})

and then uses `size.updates`. The environment variable `HEADWISE_TUTORIAL=small` selects the small sizes, with which all
cells take seconds and the results mean nothing; otherwise the full ones hold.

A cell with the tag `hide-input` is folded in the page and in JupyterLab: set-up that a reader may skip.

`best_guess` is the chance level that a chapter prints beside its results. `check("1.1", answer)` says whether an answer
is right, `solution("1.1")` prints the answer, and `show_source(object)` displays the code of a class or function.
"""

import inspect
import os
import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

from headwise.errors import unknown
from headwise.lab.tutorial.chapter_1 import EXERCISES as CHAPTER_1
from headwise.lab.tutorial.chapter_2 import EXERCISES as CHAPTER_2
from headwise.lab.tutorial.chapter_3 import EXERCISES as CHAPTER_3
from headwise.lab.tutorial.chapter_4 import EXERCISES as CHAPTER_4
from headwise.lab.tutorial.chapter_5 import EXERCISES as CHAPTER_5
from headwise.lab.tutorial.chapter_6 import EXERCISES as CHAPTER_6
from headwise.lab.tutorial.exercises import Exercise

__all__ = ["best_guess", "check", "settings", "show_source", "solution"]
VARIABLE = "HEADWISE_TUTORIAL"
SIZES = ("full", "small")
PACKAGES = Path(__file__).parents[3]
ALL: dict[str, Exercise] = {**CHAPTER_1, **CHAPTER_2, **CHAPTER_3, **CHAPTER_4, **CHAPTER_5, **CHAPTER_6}
LINE_LENGTH = 88  # of printed explanations


def tutorial_size() -> str:
    """The size in the environment variable `HEADWISE_TUTORIAL`, by default "full"; `UserError` for an unknown one."""
    size = os.environ.get(VARIABLE) or "full"
    if size not in SIZES:
        raise unknown(f"size in {VARIABLE}", size, SIZES)
    return size


def settings(full: Mapping[str, Any], small: Mapping[str, Any]) -> SimpleNamespace:
    """The settings of a chapter as attributes, at the size of `tutorial_size`.

    >>> settings(full={"updates": 600}, small={"updates": 600}).updates
    600

    Raises:
        ValueError: the two sizes have different settings.
    """
    if full.keys() != small.keys():
        raise ValueError(f"settings of one size only: {', '.join(sorted(full.keys() ^ small.keys()))}")
    return SimpleNamespace(**(small if tutorial_size() == "small" else full))


def best_guess(answers: Sequence[Any], *known: Sequence[Any]) -> float:
    """The accuracy of always giving the most frequent answer, for each case of what is `known` of it.

    >>> best_guess("aab"), best_guess("aabb", "1122"), best_guess("aabb", "1212")
    (0.6666666666666666, 1.0, 0.5)
    """
    cases: dict[tuple[Any, ...], Counter[Any]] = defaultdict(Counter)
    for answer, *case in zip(answers, *known, strict=True):
        cases[tuple(case)][answer] += 1
    return sum(max(counts.values()) for counts in cases.values()) / len(answers)


@dataclass(frozen=True)
class SourceListing:
    """The code of a class or function."""

    code: str
    place: str  # file and line

    def __repr__(self) -> str:
        return f"# {self.place}\n{self.code}"

    def _repr_markdown_(self) -> str:
        return f"```python\n{self!r}\n```"


def show_source(code: Callable[..., Any] | type) -> SourceListing:
    """The source of a class, function or method of the library; as the last value of a cell it is displayed.

    >>> from headwise.core.attention import merge_heads
    >>> show_source(merge_heads)
    # headwise/core/attention.py, line ...
    def merge_heads(...
    """
    original = inspect.unwrap(code)
    lines, first = inspect.getsourcelines(original)
    path = Path(inspect.getsourcefile(original) or "")
    name = path.relative_to(PACKAGES).as_posix() if path.is_relative_to(PACKAGES) else path.name
    return SourceListing(dedent("".join(lines)).rstrip("\n"), f"{name}, line {first}")


@dataclass(frozen=True)
class CheckedAnswer:
    """Whether an answer is right, as a condition; a notebook shows nothing, because `check` has printed it."""

    right: bool

    def __bool__(self) -> bool:
        return self.right

    def _ipython_display_(self) -> None:
        pass


def check(exercise: str, answer: object) -> CheckedAnswer:
    """Print whether the answer to an exercise is right, with a hint if not, and return it.

    An answer of `...` counts as none yet.

    >>> bool(check("1.2", ...))
    Exercise 1.2: no answer yet. Replace ... by your answer.
    False

    Raises:
        UserError: there is no such exercise.
    """
    examine = exercise_of(exercise).examine
    if answer is ...:
        print(f"Exercise {exercise}: no answer yet. Replace ... by your answer.")
        return CheckedAnswer(False)
    try:
        hint = examine(answer)
    except Exception as error:  # of a function that somebody has just written
        hint = f"Your answer raises {type(error).__name__}: {error}"
    print(f"Exercise {exercise}: {f'not yet. {hint}' if hint else 'right.'}")
    return CheckedAnswer(not hint)


def solution(exercise: str) -> None:
    """Print the solution of an exercise and why it is right; `UserError` if there is no such exercise."""
    found = exercise_of(exercise)
    explanation = textwrap.fill(found.explanation.strip(), LINE_LENGTH)
    print(f"# Exercise {exercise}: {found.question}\n\n{found.solution.strip()}\n\n{explanation}")


def exercise_of(number: str) -> Exercise:
    """The exercise with a number such as "1.1"; `UserError` if there is none."""
    if number not in ALL:
        raise unknown("exercise", number, ALL)
    return ALL[number]

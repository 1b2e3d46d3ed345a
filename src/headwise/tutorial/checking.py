"""Answers to the exercises of all chapters: `check`, `solution`."""

import textwrap
from dataclasses import dataclass

from headwise.errors import unknown
from headwise.tutorial.chapter_1 import EXERCISES as CHAPTER_1
from headwise.tutorial.chapter_2 import EXERCISES as CHAPTER_2
from headwise.tutorial.chapter_3 import EXERCISES as CHAPTER_3
from headwise.tutorial.chapter_4 import EXERCISES as CHAPTER_4
from headwise.tutorial.chapter_5 import EXERCISES as CHAPTER_5
from headwise.tutorial.chapter_6 import EXERCISES as CHAPTER_6
from headwise.tutorial.exercises import Exercise

ALL: dict[str, Exercise] = {**CHAPTER_1, **CHAPTER_2, **CHAPTER_3, **CHAPTER_4, **CHAPTER_5, **CHAPTER_6}
LINE_LENGTH = 88  # of printed explanations


@dataclass(frozen=True)
class CheckedAnswer:
    """Whether an answer is right, as a condition; a notebook shows nothing, because `check` has printed it."""

    right: bool

    def __bool__(self) -> bool:
        return self.right

    def _ipython_display_(self) -> None:
        pass


def check_answer(exercise: str, answer: object) -> CheckedAnswer:
    """Print whether the answer to an exercise is right, with a hint if not, and return it.

    An answer of `...` counts as none yet.

    >>> bool(check_answer("1.2", ...))
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


def print_solution(exercise: str) -> None:
    """Print the solution of an exercise and why it is right; `UserError` if there is no such exercise."""
    found = exercise_of(exercise)
    explanation = textwrap.fill(found.explanation.strip(), LINE_LENGTH)
    print(f"# Exercise {exercise}: {found.question}\n\n{found.solution.strip()}\n\n{explanation}")


def exercise_of(number: str) -> Exercise:
    """The exercise with a number such as "1.1"; `UserError` if there is none."""
    if number not in ALL:
        raise unknown("exercise", number, ALL)
    return ALL[number]

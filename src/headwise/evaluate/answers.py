"""Exact match and word F1 of answers, as computed by the script of SQuAD 2.0 (arXiv:1806.03822).

Both ignore case, punctuation and English articles, and use the best of the reference answers. If there is none, only
an empty answer is right.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from headwise.text.files.sources import count_of

ARTICLES = re.compile(r"\b(a|an|the)\b", re.UNICODE)
PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """An answer as it is compared.

    >>> normalize_answer("The  U.S. dollar, an-d a cent!")
    'us dollar and cent'
    """
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact_match(answer: str, gold: str) -> bool:
    """Whether both answers are the same.

    >>> exact_match("the Rhine", "Rhine."), exact_match("", "Rhine")
    (True, False)
    """
    return normalize_answer(answer) == normalize_answer(gold)


def f1_of_words(answer: str, gold: str) -> float:
    """The harmonic mean of word precision and recall, with repetitions.

    >>> round(f1_of_words("the river Rhine", "Rhine"), 3)
    0.667
    """
    words, wanted = normalize_answer(answer).split(), normalize_answer(gold).split()
    if not words or not wanted:
        return float(words == wanted)
    same = sum((Counter(words) & Counter(wanted)).values())
    return 2 * same / (len(words) + len(wanted))


@dataclass(frozen=True)
class AnswerReport:
    """Scores of a test set, shares of its questions."""

    exact_match: float
    f1: float
    questions: int
    without: int = 0  # questions without an answer
    f1_with: float = 0.0  # of questions with an answer
    right_without: float = 0.0  # share of questions without an answer that are left unanswered

    def as_json(self) -> dict[str, float]:
        """The fields; those about questions without an answer only if there are any."""
        apart = ("without", "f1_with", "right_without")
        return {name: value for name, value in vars(self).items() if self.without or name not in apart}

    def render(self) -> str:
        """One line for people, and a second one if there are questions without an answer."""
        lines = [f"exact match {self.exact_match:.2%}, F1 {self.f1:.2%} over {count_of(self.questions, 'question')}"]
        if self.without:
            lines.append(
                f"F1 {self.f1_with:.2%} where there is an answer; {self.right_without:.2%} of {self.without:,} "
                "questions without one are left unanswered"
            )
        return "\n".join(lines)


def answer_report(answers: Sequence[str], gold: Sequence[Sequence[str]]) -> AnswerReport:
    """Scores of answers, each with the reference answers of its question; an empty list means it has no answer.

    >>> answer_report(["Rhine", ""], [["the Rhine", "Rhine river"], []])
    AnswerReport(exact_match=1.0, f1=1.0, questions=2, without=1, f1_with=1.0, right_without=1.0)
    """
    assert len(answers) == len(gold) > 0
    rows = [_scores(answer, texts) for answer, texts in zip(answers, gold, strict=True)]
    there, none = ([row for row, texts in zip(rows, gold, strict=True) if bool(texts) == wanted] for wanted in (1, 0))
    return AnswerReport(
        _mean([exact for exact, _ in rows]), _mean([f1 for _, f1 in rows]), len(rows),
        len(none), _mean([f1 for _, f1 in there]), _mean([f1 for _, f1 in none]),
    )  # fmt: skip


def _scores(answer: str, texts: Sequence[str]) -> tuple[float, float]:
    wanted = [text for text in texts if normalize_answer(text)] or [""]
    return float(max(exact_match(answer, text) for text in wanted)), max(f1_of_words(answer, text) for text in wanted)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0

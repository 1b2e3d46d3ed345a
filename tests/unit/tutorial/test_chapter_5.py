"""Typical wrong answers to the exercises of chapter 5, and answers that are rounded."""

from typing import Any

import pytest
import torch

from headwise.contract import Limits, SearchOptions
from headwise.core.search import greedy
from headwise.lab.tutorial import check
from headwise.lab.tutorial.chapter_5 import ALPHA, LOG_PROBS


@pytest.mark.parametrize(
    ("number", "answer", "hint"),
    [
        ("5.1", (100, 5050), "in the wrong order"),
        ("5.1", (10_000, 100), "Add up 1 + 2"),
        ("5.1", (4950, 100), "Do not begin with 0"),
        ("5.1", 5050, "Two numbers"),
        ("5.2", -0.8415, "The end token counts"),
        ("5.2", -1.0, "Divide it by the length penalty"),
        ("5.2", -0.25, "the mean log-probability"),
        ("5.2", -0.4353, "begins with (5 + |Y|) / 6"),
        ("5.2", -1.2754, "Divide."),
        ("5.2", 0.7841, "Add the four"),
        ("5.3", 0.25, "must sum to one again"),
        ("5.3", 0.3333, "needs a third"),
        ("5.3", 0.3125, "more than 0.8"),
        ("5.3", 0.5556, "Add tokens"),  # of the first token
    ],
)
def test_a_wrong_answer_gets_its_hint(number: str, answer: Any, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert not check(number, answer)
    assert hint in capsys.readouterr().out


class NoCache:
    def reorder(self, index: Any) -> None: ...

    def select(self, index: Any) -> None: ...


def test_the_score_is_that_of_the_search() -> None:
    """A model that gives the tokens 4, 5, 6 and the end token these probabilities, and the rest to another token."""
    path, bos, eos, other = (4, 5, 6, 2), 1, 2, 7
    table = torch.zeros(8, 8)
    for before, token, log_prob in zip((bos, *path), path, LOG_PROBS, strict=False):
        table[before, token] = torch.tensor(log_prob).exp()
        table[before, other] = 1 - table[before, token]
    limits = Limits(torch.tensor([0]), torch.tensor([10]), torch.zeros(1, 0, dtype=torch.long))
    options = SearchOptions(beam_size=1, length_penalty=ALPHA, bos_id=bos, eos_id=eos)
    found = greedy(lambda tokens, cache: table[tokens[:, -1]].log(), NoCache(), limits, options)[0][0]
    assert found.tokens == [4, 5, 6]
    assert check("5.2", found.score)


@pytest.mark.parametrize(("number", "answer"), [("5.1", [5050, 100]), ("5.2", -0.784), ("5.3", 0.2778)])
def test_rounded_answers_are_right(number: str, answer: Any) -> None:
    assert check(number, answer)

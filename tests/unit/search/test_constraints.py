"""Each constraint separately, on hand-written log-probabilities."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.contract import Limits, SearchOptions
from headwise.core.search import (
    FREE,
    allowed_log_probs,
    ban_repeated_ngrams,
    ban_tokens,
    constrain,
    end_if_stuck,
    force,
    repeat,
    take,
)

INF = math.inf


def possible(log_probs: torch.Tensor) -> list[list[int]]:
    return [[i for i, value in enumerate(row) if value > -INF] for row in log_probs.tolist()]


def limits(min_length, prefix):
    rows = len(min_length)
    return Limits(
        torch.tensor(min_length),
        torch.full((rows,), 9),
        torch.tensor(prefix, dtype=torch.long).view(rows, -1),
    )


def test_banned_tokens_and_early_ends_get_minus_infinity():
    log_probs = torch.randn(2, 5)
    allowed = ban_tokens(log_probs.clone(), [0, 3], torch.tensor([True, False]), ends=(2,))
    assert possible(allowed) == [[1, 2, 4], [1, 4]]
    assert torch.equal(allowed[:, [1, 4]], log_probs[:, [1, 4]])


@settings(max_examples=60)
@given(st.lists(st.integers(0, 3), max_size=12), st.integers(1, 4))
def test_banned_are_exactly_the_tokens_that_repeat_an_ngram(history, n):
    allowed = ban_repeated_ngrams(torch.zeros(1, 4), torch.tensor([history], dtype=torch.long), n)

    def repeats(token):
        after = [*history, token]
        ngrams = [tuple(after[i : i + n]) for i in range(len(after) - n + 1)]
        return len(after) >= n and ngrams.count(ngrams[-1]) > 1

    assert possible(allowed) == [[t for t in range(4) if not repeats(t)]]


def test_a_row_without_allowed_tokens_may_end():
    log_probs = torch.tensor([[-1.0, -2.0, -3.0], [-1.0, -2.0, -3.0]])
    allowed = torch.tensor([[-INF, -INF, -INF], [-INF, -2.0, -INF]])
    assert end_if_stuck(allowed, log_probs, eos_id=2).tolist() == [[-INF, -INF, -3.0], [-INF, -2.0, -INF]]


def test_a_forced_token_keeps_its_log_prob():
    log_probs = torch.tensor([[-1.0, -2.0], [-1.0, -2.0]])
    allowed = torch.tensor([[-1.0, -INF], [-1.0, -INF]])
    assert force(allowed, log_probs, torch.tensor([1, FREE])).tolist() == [[-INF, -2.0], [-1.0, -INF]]


def test_prefix_overrides_other_constraints():
    rows = limits([0, 0], [[3, 3], [4, FREE]])
    history = torch.tensor([[3], [4]])
    allowed = constrain(torch.zeros(2, 5), history, rows, SearchOptions(suppressed=(0, 1), no_repeat_ngram=1))
    assert possible(allowed) == [[3], [2, 3]]
    allowed = constrain(torch.zeros(2, 5), torch.tensor([[3, 3], [4, 3]]), rows, SearchOptions(suppressed=(0, 1)))
    assert possible(allowed) == [[2, 3, 4], [2, 3, 4]]


@pytest.mark.parametrize(("length", "may_end"), [(1, False), (2, True)])
def test_no_end_before_the_minimum_length(length, may_end):
    allowed = constrain(torch.zeros(1, 5), torch.full((1, length), 4), limits([2], [[]]), SearchOptions())
    assert (2 in possible(allowed)[0]) == may_end


def test_a_forced_end_overrides_other_constraints():
    options = SearchOptions(suppressed=(4,), no_repeat_ngram=1, forced_end=4, end_at=3)
    allowed = allowed_log_probs(torch.zeros(1, 5), torch.tensor([[4, 3]]), limits([0], [[]]), options)
    assert allowed.tolist() == [[-INF] * 4 + [0.0]]


def test_take_and_repeat_apply_to_every_field():
    rows = limits([1, 2], [[5], [6]])
    assert take(rows, torch.tensor([1])).prefix.tolist() == [[6]]
    repeated = repeat(rows, 2)
    assert repeated.min_length.tolist() == [1, 1, 2, 2] and repeated.prefix.tolist() == [[5], [5], [6], [6]]

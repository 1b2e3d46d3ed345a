"""Selection with ties, against Python's sort."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwise.core.search import best, best_continuations, highest, order_keys, sort_descending

FEW_VALUES = st.sampled_from([-float("inf"), -2.5, -(2.0**-100), -0.0, 0.0, 2.0**-100, 3.0, float("inf")])


@settings(max_examples=60)
@given(st.lists(FEW_VALUES, min_size=1, max_size=200), st.integers(1, 20))
@example([-0.0, 0.0, -0.0], 3)
def test_best_is_a_stable_sort(values, count):
    count = min(count, len(values))
    expected = sorted(range(len(values)), key=lambda i: (-values[i], i))[:count]
    chosen, index = best(torch.tensor([values]), count)
    assert index[0].tolist() == expected
    assert chosen[0].tolist() == [values[i] for i in expected]
    assert sort_descending(torch.tensor([values]), count)[1][0].tolist() == expected
    assert highest(torch.tensor([values])).item() == expected[0]


def test_best_is_a_stable_sort_over_many_blocks_full_of_ties():
    scores = torch.randint(0, 3, (6, 1500)).float()
    expected = scores.sort(dim=1, descending=True, stable=True).indices[:, :12]
    assert torch.equal(best(scores, 12)[1], expected)
    sparse = torch.zeros(1, 1500).index_fill(1, torch.tensor([1400, 700, 69, 65]), 1.0)
    assert best(sparse, 6)[1].tolist() == [[65, 69, 700, 1400, 0, 1]]


@pytest.mark.parametrize("n", [3, 64, 70, 640, 1000])
def test_continuations_are_ranked_by_their_sums(n):
    """With few distinct values, so that sums are often equal: then the lower hypothesis is first."""
    scores, so_far = torch.randint(0, 4, (5, 3, n)).float(), torch.randint(0, 3, (5, 3)).float()
    sums = (scores + so_far.unsqueeze(2)).flatten(1)
    expected = sums.sort(dim=1, descending=True, stable=True)
    values, parents, entries = best_continuations(scores, so_far, 8)
    assert torch.equal(parents * n + entries, expected.indices[:, :8])
    assert torch.equal(values, expected.values[:, :8])


def test_highest_is_the_first_of_equals_within_and_across_blocks():
    scores = torch.randint(0, 3, (50, 640)).float()
    assert torch.equal(highest(scores), best(scores, 1)[1].squeeze(1))
    assert highest(torch.zeros(1, 640).index_fill(1, torch.tensor([600, 70, 66]), 1.0)).item() == 66


@pytest.mark.parametrize("n", [1, 63, 64, 65, 1000])
def test_best_equals_topk_without_ties(n):
    scores = torch.randn(5, n)
    count = min(8, n)
    values, index = best(scores, count)
    expected = scores.topk(count)
    assert torch.equal(values, expected.values) and torch.equal(index, expected.indices)


@pytest.mark.parametrize("nan", [float("nan"), -float("nan")])
def test_indices_stay_valid_with_nan(nan):
    _, index = best(torch.full((2, 70), nan), 5)
    assert index.min() >= 0 and index.max() < 70


def test_keys_sort_like_floats():
    scores = torch.randn(1, 500) * 10.0 ** torch.randint(-30, 30, (1, 500))
    assert torch.equal(order_keys(scores).argsort(), scores.argsort())

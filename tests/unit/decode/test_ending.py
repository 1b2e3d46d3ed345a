"""The two rules by which a beam search ends, on numbers small enough to follow."""

import pytest
import torch

from headwise.decode.ending import PoolFilled, Unsurpassed, length_penalty

LIVE, NONE = torch.tensor([[-4.0, -6.0]]), -torch.inf


def test_penalties() -> None:
    assert Unsurpassed().penalty(7, 1.0) == length_penalty(7, 1.0) == 2.0
    assert PoolFilled().penalty(3, 2.0) == 9
    assert PoolFilled(begun=1).penalty(3, 2.0) == 16
    assert PoolFilled().penalty(4, -0.5) == 0.5


@pytest.mark.parametrize(("worst", "over"), [(-1.9, True), (-2.1, False)])
def test_unsurpassed_looks_as_far_as_the_longest_length(worst: float, over: bool) -> None:
    """-4 over lp(7) = 2 is the best that may come."""
    finished = torch.tensor([[-0.5, worst]])
    assert Unsurpassed().settled(LIVE, finished, 2, torch.tensor([7]), 1.0).tolist() == [over]


@pytest.mark.parametrize(
    ("rule", "worst", "over"),
    [
        (PoolFilled(), -1.9, True),  # -4 / 2 now
        (PoolFilled(), -2.1, False),
        (PoolFilled(patient=True), -0.9, False),  # -4 / 8 at the longest
        (PoolFilled(patient=True), -0.4, True),
        (PoolFilled(early=True), -9.0, True),
        (PoolFilled(early=True), NONE, False),
        (PoolFilled(), NONE, False),
    ],
)
def test_a_filled_pool(rule: PoolFilled, worst: float, over: bool) -> None:
    finished = torch.tensor([[-0.1, worst]])
    assert rule.settled(LIVE, finished, 2, torch.tensor([8]), 1.0).tolist() == [over]


def test_what_each_keeps() -> None:
    assert (Unsurpassed().pool(4, 2), Unsurpassed().counted(4, 8)) == (2, 8)
    assert (PoolFilled().pool(4, 2), PoolFilled().counted(4, 8)) == (4, 4)

"""Stopping rules of beam search, on small numbers."""

import pytest
import torch

from headwise.contract import length_penalty
from headwise.core.search import ExactStopping, HuggingFaceStopping

LIVE, NONE = torch.tensor([[-4.0, -6.0]]), -torch.inf


def test_penalties() -> None:
    assert ExactStopping().penalty(7, 1.0) == length_penalty(7, 1.0) == 2.0
    assert HuggingFaceStopping().penalty(3, 2.0) == 9
    assert HuggingFaceStopping(n_forced=1).penalty(3, 2.0) == 16
    assert HuggingFaceStopping().penalty(4, -0.5) == 0.5


@pytest.mark.parametrize(("worst", "over"), [(-1.9, True), (-2.1, False)])
def test_exact_stopping_uses_the_maximum_length(worst: float, over: bool) -> None:
    """-4 / lp(7) = -2 is the best possible score."""
    finished = torch.tensor([[-0.5, worst]])
    assert ExactStopping().is_done(LIVE, finished, 2, torch.tensor([7]), 1.0).tolist() == [over]


@pytest.mark.parametrize(
    ("rule", "worst", "over"),
    [
        (HuggingFaceStopping(), -1.9, True),  # -4 / 2 now
        (HuggingFaceStopping(), -2.1, False),
        (HuggingFaceStopping(patient=True), -0.9, False),  # -4 / 8 at the longest
        (HuggingFaceStopping(patient=True), -0.4, True),
        (HuggingFaceStopping(early=True), -9.0, True),
        (HuggingFaceStopping(early=True), NONE, False),
        (HuggingFaceStopping(), NONE, False),
    ],
)
def test_hugging_face_stopping(rule: HuggingFaceStopping, worst: float, over: bool) -> None:
    finished = torch.tensor([[-0.1, worst]])
    assert rule.is_done(LIVE, finished, 2, torch.tensor([8]), 1.0).tolist() == [over]


def test_pools() -> None:
    assert (ExactStopping().pool(4, 2), ExactStopping().n_may_finish(4, 8)) == (2, 8)
    assert (HuggingFaceStopping().pool(4, 2), HuggingFaceStopping().n_may_finish(4, 8)) == (4, 4)

"""What XLNet predicts in a block, and in which order: by hand, shares, and after resuming."""

from contextlib import closing
from itertools import islice

import numpy as np
import pytest
import torch

from headwise.pytorch.architectures.xlnet import partial_order_mask
from headwise.pytorch.data.permutation import PermutedBatch, PermutedText, limit_span_lengths, place_spans, sample_order

TEXT = np.random.default_rng(0).integers(5, 60, 3000).astype(np.int32)


class Drawn(np.random.Generator):
    """A generator that returns given samples."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64())

    def integers(self, low: int, high: int, n: int) -> np.ndarray:  # pyright: ignore
        assert (low, high, n) == (1, 6, 4)
        return np.array([2, 1, 5, 3])

    def random(self, n: int) -> np.ndarray:  # pyright: ignore
        return np.array([0.5, 0.99, 0.0])[:n]

    def permutation(self, n: int) -> np.ndarray:  # pyright: ignore
        assert n == 4
        return np.array([2, 0, 3, 1])


def test_by_hand() -> None:
    """4 of 26 tokens: 2 within the first 12, 1 within the next 6, 1 of a sampled span of 5 within the last 6."""
    places, rank = sample_order(26, Drawn())
    assert places.tolist() == [5, 6, 17, 18]
    assert [rank[position] for position in places] == [2, 0, 3, 1] and (np.delete(rank, places) == -1).all()


def test_masks_by_hand() -> None:
    """Token 3 is predicted first, then 1, then 2: each sees 0 and 4, which see each other, and those before it."""
    seen = partial_order_mask(torch.tensor([[-1, 1, 2, 0, -1]]))[0].int().tolist()
    assert seen == [[1, 0, 0, 0, 1], [1, 0, 0, 1, 1], [1, 1, 0, 1, 1], [1, 0, 0, 0, 1], [1, 0, 0, 0, 1]]


@pytest.mark.parametrize("length", [1, 5, 6, 126, 512])
def test_one_in_six_is_predicted(length: int) -> None:
    places, rank = sample_order(length, np.random.default_rng(length))
    assert len(set(places.tolist())) == max(1, length // 6) and 0 <= places.min() <= places.max() < length
    assert sorted(rank[places].tolist()) == list(range(len(places)))


def test_spans_are_one_to_five_long_wherever_there_is_room() -> None:
    assert limit_span_lengths(9, [5, 5]) == [5, 4]
    assert place_spans([1], [0.999], 6) == [5] and place_spans([5], [0.999], 30) == [25, 26, 27, 28, 29]


def text() -> PermutedText:
    return PermutedText(TEXT, 64, [2, 1])


def test_special_tokens_at_the_end_are_not_predicted() -> None:
    batch = next(text().fixed(256))
    assert batch.src.shape == (4, 64) and (batch.src[:, -2:] == torch.tensor([2, 1])).all()
    assert (batch.rank[:, -2:] == -1).all() and batch.positions.shape == (4, 10)
    assert batch.targets[0].tolist() == [TEXT[position] for position in batch.positions[0].tolist()]


def test_a_resumed_stream_is_exact() -> None:
    def batches(n: int, state: dict[str, int] | None = None) -> tuple[list[PermutedBatch], dict[str, int]]:
        with closing(text().stream(200, 7, state)) as stream:
            return list(islice(stream, n)), stream.state()

    whole, _ = batches(40)
    first, state = batches(17)
    rest, _ = batches(23, state)
    for a, b in zip(whole, first + rest, strict=True):
        assert torch.equal(a.src, b.src) and torch.equal(a.rank, b.rank) and torch.equal(a.positions, b.positions)

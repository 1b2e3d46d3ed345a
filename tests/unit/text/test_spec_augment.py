"""Masks of spectrograms: number, positions and share of spans."""

import numpy as np
import pytest
import torch

from headwise.pytorch.data.spec_augment import Spans, SpecAugment


def test_frames_and_bands_in_spans_are_zero() -> None:
    """One span of two in six frames and one of one in four bands give a cross of zeros."""
    masks = SpecAugment(Spans(share=2 / 6, length=2, least=0), Spans(share=1 / 4, length=1, least=0))
    mel = torch.ones(4, 6)
    found = masks(mel, np.random.default_rng(0))
    frames, bands = (found == 0).all(0), (found == 0).all(1)
    assert frames.sum() == 2 and bands.sum() == 1
    assert frames.nonzero().diff(dim=0).tolist() == [[1]]
    assert torch.equal(found == 0, frames | bands[:, None]) and mel.min() == 1


@pytest.mark.parametrize(
    ("spans", "size", "expected"),
    [
        (Spans(0.05, 10, 2), 3000, 15.0),
        (Spans(0.05, 10, 2), 1000, 5.0),
        (Spans(0.05, 10, 2), 100, 2.0),  # half a span on average, and two at least
        (Spans(0.065, 10, 0), 100, 0.65),
        (Spans(0.5, 10, 0), 12, 0.6),
        (Spans(0.9, 5, 0), 9, 1.0),  # there is room for one
        (Spans(0.0, 10, 2), 1000, 0.0),
    ],
)
def test_number_of_spans(spans: Spans, size: int, expected: float) -> None:
    """A fractional span is rounded up with its probability; the masked share allows for overlaps."""
    generator = np.random.default_rng(0)
    counts = [spans.count(size, generator.random()) if spans.share else 0 for _ in range(4000)]
    assert np.mean(counts) == pytest.approx(expected, abs=0.03)
    masked = np.mean([spans(size, generator).mean() for _ in range(2000)])
    assert masked <= expected * spans.length / size + 0.01
    assert masked == pytest.approx(expected_share(spans, size, counts), abs=0.01)


def expected_share(spans: Spans, size: int, counts: list[int]) -> float:
    """A cell is masked if any of n starts, sampled without replacement, reaches it."""
    starts = size - spans.length + 1
    found = []
    for n in set(counts):
        reach = [min(i, starts - 1) - max(0, i - spans.length + 1) + 1 for i in range(size)]
        missed = [np.prod([max(0, starts - r - k) / (starts - k) for k in range(n)]) for r in reach]
        found.append(counts.count(n) / len(counts) * (1 - np.mean(missed)))
    return float(sum(found))

"""Warnings about small data: thresholds and recommendations."""

import pytest

from headwise.tasks.parallel_text import few_training_pairs, few_validation_pairs, large_vocabulary


@pytest.mark.parametrize(("pairs", "warns"), [(22, True), (9_999, True), (10_000, False), (29_000, False)])
def test_training_pairs(pairs: int, warns: bool) -> None:
    found = list(few_training_pairs(pairs))
    assert len(found) == warns
    assert all(f"--train has {pairs:,} pairs, too few" in line and "`headwise tune MODEL`" in line for line in found)


@pytest.mark.parametrize(("pairs", "warns"), [(1, True), (199, True), (200, False), (1_014, False)])
def test_validation_pairs(pairs: int, warns: bool) -> None:
    found = list(few_validation_pairs(pairs))
    assert len(found) == warns
    assert all(f"--valid has {pairs:,} pairs, too few" in line and "--valid 500pairs" in line for line in found)


@pytest.mark.parametrize(
    ("vocab_size", "tokens", "recommended"),
    [
        (10_000, 800_000, ""),  # Multi30k with the recipe `tiny`
        (10_000, 200_000, ""),
        (10_000, 199_999, "data.vocab_size=3900"),
        (700, 660, "data.vocab_size=300"),  # 22 pairs
        (300, 660, ""),  # the smallest recommended size
    ],
)
def test_vocabulary(vocab_size: int, tokens: int, recommended: str) -> None:
    found = list(large_vocabulary(vocab_size, tokens))
    assert [line.partition(": set ")[2] for line in found] == ([recommended] if recommended else [])

"""Step functions without a model: logits are a pseudo-random function of the sentence and all tokens so far.

Their cache holds just these tokens, so a search that mixes up rows gets other logits and fails.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from headwise.contract import Limits
from headwise.core.search import FREE


@dataclass
class HistoryCache:
    """One row per hypothesis: its sentence and what it was fed."""

    sentences: list[int]
    fed: list[tuple[int, ...]] = field(default_factory=list)
    rows_per_step: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.fed = [()] * len(self.sentences)

    def select(self, index: Tensor) -> None:
        self.sentences = [self.sentences[i] for i in index.tolist()]
        self.fed = [self.fed[i] for i in index.tolist()]

    def reorder(self, index: Tensor) -> None:
        before = self.sentences
        self.select(index)
        assert self.sentences == before, "reorder moved a row to another sentence"


def table_logits(sentence: int, fed: Sequence[int], vocab: int) -> list[float]:
    """The logits of one row."""
    generator = random.Random(repr((sentence, tuple(fed))))
    return [generator.gauss(0.0, 1.5) for _ in range(vocab)]


@pytest.fixture
def table_step() -> Callable[[int], Callable[[Tensor, HistoryCache], Tensor]]:
    """A step function for a vocabulary of that size."""

    def make(vocab: int) -> Callable[[Tensor, HistoryCache], Tensor]:
        def step(tokens: Tensor, cache: HistoryCache) -> Tensor:
            assert tokens.shape == (len(cache.sentences), 1)
            cache.rows_per_step.append(len(tokens))
            cache.fed = [(*fed, token) for fed, token in zip(cache.fed, tokens.squeeze(1).tolist(), strict=True)]
            rows = zip(cache.sentences, cache.fed, strict=True)
            return torch.tensor([table_logits(sentence, fed, vocab) for sentence, fed in rows])

        return step

    return make


@pytest.fixture
def start_cache() -> type[HistoryCache]:
    return HistoryCache


@pytest.fixture
def logits_of() -> Callable[[int, Sequence[int], int], list[float]]:
    return table_logits


@pytest.fixture
def make_limits() -> Callable[..., Limits]:
    """Limits from plain lists."""

    def make(longest: list[int], shortest: list[int] | None = None, prefixes: list[list[int]] | None = None) -> Limits:
        prefixes = prefixes or [[] for _ in longest]
        width = max(map(len, prefixes))
        return Limits(
            torch.tensor(shortest or [0] * len(longest)),
            torch.tensor(longest),
            torch.tensor([p + [FREE] * (width - len(p)) for p in prefixes], dtype=torch.long).view(len(longest), width),
        )

    return make

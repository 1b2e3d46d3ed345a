"""Noise in source sentences: text infilling for denoising pre-training, and token dropout.

Text infilling (BART, Lewis et al. 2020, arXiv:1910.13461, section 2.2): spans of words with lengths from Poisson(3) are
each replaced by one mask token until 30 % of the words are masked. A span of length 0 inserts a mask between two words.

Deviations: no two masks are adjacent, because they would look like one, and spans of length 0 never make a text longer.
BART's sentence permutation does not apply, because a line is one sentence; it is in `corruption.py`.

The noise of a text is a function of (seed, epoch, row), so a resumed run is identical.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headwise.text.tokens.pair_tokenizer import Tokens
from headwise.text.tokens.tokenizer import Tokenizer

MASK = "<mask>"  # a declared token of the tokenizer
PERCENT, MEAN_SPAN = 30, 3.0  # masked words, words per span
UNSPACED = 4  # average tokens per word from which a text counts as written without spaces


@dataclass(frozen=True)
class TokenDropout:
    """Replaces each source token by the unknown token with a probability (word dropout, arXiv:1905.11901).

    Declared tokens, such as language tags, stay. Every position is sampled separately, not every type.
    """

    tokenizer: Tokenizer
    probability: float
    seed: int

    def __call__(self, tokens: Tokens, epoch: int, row: int) -> NDArray[np.int32]:
        """The token ids of a source with dropout in an epoch; the length stays."""
        tokens = np.asarray(tokens, np.int32)
        dropped = np.random.default_rng([self.seed, epoch, row]).random(len(tokens)) < self.probability
        return np.where(dropped & self._droppable[tokens], np.int32(self.tokenizer.unk_id), tokens)

    @cached_property
    def _droppable(self) -> NDArray[np.bool_]:
        """For each id, whether it is not declared."""
        droppable = np.ones(self.tokenizer.vocab_size, np.bool_)
        droppable[list(self.tokenizer.declared)] = False
        return droppable


@dataclass(frozen=True)
class TextInfilling:
    """Masks spans of words; the tokenizer must have `MASK`."""

    tokenizer: Tokenizer
    seed: int

    def __call__(self, tokens: Tokens, epoch: int, row: int) -> list[int]:
        """The token ids of a text with masks in an epoch; never longer than before."""
        return infill_text(tokens, self._word_starts, self.mask_id, np.random.default_rng([self.seed, epoch, row]))

    @cached_property
    def mask_id(self) -> int:
        """The id of `MASK`."""
        return next(index for index, content in self.tokenizer.declared.items() if content == MASK)

    @cached_property
    def _word_starts(self) -> NDArray[np.bool_]:
        """For each id, whether its piece starts a word, that is, with a space."""
        pieces = self.tokenizer.pieces(range(self.tokenizer.vocab_size))
        return np.array([piece.startswith("▁") for piece in pieces])


def infill_text(
    tokens: Tokens, word_starts: NDArray[np.bool_], mask_id: int, generator: np.random.Generator
) -> list[int]:
    """Mask random spans of words; `word_starts` tells for each id whether it starts a word."""
    words = word_spans(np.asarray(tokens).tolist(), word_starts)
    spans = span_lengths(len(words), poisson_lengths(generator))
    gaps = sorted(generator.permutation(len(words) - sum(spans) + 1)[: len(spans)].tolist())
    return replace_with_masks(words, spans, gaps, mask_id)


def word_spans(tokens: Sequence[int], word_starts: NDArray[np.bool_]) -> list[list[int]]:
    """The words of a text; in a text without spaces, such as Japanese, every token is a word.

    >>> word_starts = np.array([False, True, True])
    >>> word_spans([1, 0, 2, 1, 0, 0], word_starts)
    [[1, 0], [2], [1, 0, 0]]
    >>> word_spans([1, 0, 0, 0], word_starts)
    [[1], [0], [0], [0]]
    """
    starts = [at for at, token in enumerate(tokens) if at == 0 or word_starts[token]]
    if len(tokens) >= UNSPACED * len(starts):
        return [[token] for token in tokens]
    return [list(tokens[start:end]) for start, end in zip(starts, [*starts[1:], len(tokens)], strict=True)]


def span_lengths(n_words: int, sampled: Iterable[int]) -> list[int]:
    """Lengths of the spans to mask, from the sampled ones; they sum to 30 % of the words, rounded up.

    There are at most as many spans as masked words, so that a word fits between any two.

    >>> span_lengths(10, [2, 0, 6]), span_lengths(4, [0, 0, 1, 0, 4])
    ([2, 0, 1], [1, 1])
    """
    rest = wanted = -(-PERCENT * n_words // 100)
    spans: list[int] = []
    lengths = iter(sampled)
    while rest:
        spans.append(min(next(lengths), rest))
        rest -= spans[-1]
    while len(spans) > wanted:
        spans.remove(0)
    return spans


def poisson_lengths(generator: np.random.Generator) -> Iterator[int]:
    """Endless random span lengths."""
    while True:
        yield from generator.poisson(MEAN_SPAN, 8).tolist()


def replace_with_masks(
    words: Sequence[Sequence[int]], spans: Sequence[int], gaps: Sequence[int], mask_id: int
) -> list[int]:
    """Replace each span of words by one mask.

    Args:
        words: token ids of each word.
        spans: number of words that each mask replaces.
        gaps: number of kept words before each mask, ascending.

    >>> replace_with_masks([[5], [6, 7], [8], [9]], spans=[2], gaps=[1], mask_id=0)
    [5, 0, 9]
    >>> replace_with_masks([[5], [6, 7], [8], [9]], spans=[0, 1], gaps=[0, 3], mask_id=0)
    [0, 5, 6, 7, 8, 0]
    """
    noised: list[int] = []
    at = kept = 0
    for span, gap in zip(spans, gaps, strict=True):
        noised += [token for word in words[at : at + gap - kept] for token in word]
        noised.append(mask_id)
        at, kept = at + gap - kept + span, gap
    return noised + [token for word in words[at:] for token in word]

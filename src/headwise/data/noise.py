"""What is done to a source before it is read: the noise of denoising pre-training, and pieces made unknown.

Denoising is BART's text infilling (Lewis et al. 2020, arXiv:1910.13461, section 2.2). Spans of words, of lengths drawn
from Poisson(3), are each replaced by one mask until 30 % of the words are gone; a span of length 0 is a mask put
between two words. What the masks stood for is left to the network, and how many words.

Deviations: no two masks stand side by side (they would look like one), and spans of length 0 never make a text longer.
BART's other noise, sentences in another order, means nothing here: a line is one sentence. Running text has it
(`corruption.py`).

The noise of a text is a function of (seed, epoch, row), so that a resumed run sees the same. Not here: batches
(`batching.py`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headwise.data.batch import Tokens
from headwise.data.tokenizer import Tokenizer

MASK = "<mask>"  # a declared piece of the tokenizer
PERCENT, MEAN_SPAN = 30, 3.0  # words masked, words a span
UNSPACED = 4  # pieces a word, on average, from which on a text counts as one that writes no blanks


@dataclass(frozen=True)
class TokenDropout:
    """Makes each piece of a source the unknown piece with a probability (word dropout, as in arXiv:1905.11901).

    Declared pieces are left alone: they say what is wanted. Drawn for every place, not for every kind of piece.
    """

    tokenizer: Tokenizer
    probability: float
    seed: int

    def __call__(self, tokens: Tokens, epoch: int, row: int) -> NDArray[np.int32]:
        """A source in ids as it is read in an epoch, as long as before."""
        tokens = np.asarray(tokens, np.int32)
        drawn = np.random.default_rng([self.seed, epoch, row]).random(len(tokens)) < self.probability
        return np.where(drawn & self._droppable[tokens], np.int32(self.tokenizer.unk_id), tokens)

    @cached_property
    def _droppable(self) -> NDArray[np.bool_]:
        """Which pieces are not declared."""
        droppable = np.ones(self.tokenizer.vocab_size, np.bool_)
        droppable[list(self.tokenizer.declared)] = False
        return droppable


@dataclass(frozen=True)
class TextInfilling:
    """Masks words of texts of one tokenizer, which knows `MASK`."""

    tokenizer: Tokenizer
    seed: int

    def __call__(self, tokens: Tokens, epoch: int, row: int) -> list[int]:
        """A text in ids as it is read in an epoch; it is never longer than before."""
        return infill_text(tokens, self._begins, self.mask_id, np.random.default_rng([self.seed, epoch, row]))

    @cached_property
    def mask_id(self) -> int:
        """The id of `MASK`."""
        return next(index for index, content in self.tokenizer.declared.items() if content == MASK)

    @cached_property
    def _begins(self) -> NDArray[np.bool_]:
        """Which pieces begin a word: those with a blank before them."""
        pieces = self.tokenizer.pieces(range(self.tokenizer.vocab_size))
        return np.array([piece.startswith("▁") for piece in pieces])


def infill_text(tokens: Tokens, begins: NDArray[np.bool_], mask_id: int, generator: np.random.Generator) -> list[int]:
    """Tokens with masks in the place of spans of words, which `begins` says the first pieces of."""
    words = word_spans(np.asarray(tokens).tolist(), begins)
    spans = span_lengths(len(words), poisson_lengths(generator))
    gaps = sorted(generator.permutation(len(words) - sum(spans) + 1)[: len(spans)].tolist())
    return replace_with_masks(words, spans, gaps, mask_id)


def word_spans(tokens: Sequence[int], begins: NDArray[np.bool_]) -> list[list[int]]:
    """The words of a text; where it writes no blanks, as Japanese, every piece counts as one.

    >>> begins = np.array([False, True, True])
    >>> word_spans([1, 0, 2, 1, 0, 0], begins)
    [[1, 0], [2], [1, 0, 0]]
    >>> word_spans([1, 0, 0, 0], begins)
    [[1], [0], [0], [0]]
    """
    starts = [at for at, token in enumerate(tokens) if at == 0 or begins[token]]
    if len(tokens) >= UNSPACED * len(starts):
        return [[token] for token in tokens]
    return [list(tokens[start:end]) for start, end in zip(starts, [*starts[1:], len(tokens)], strict=True)]


def span_lengths(n_words: int, drawn: Iterable[int]) -> list[int]:
    """Lengths of the spans to mask, as `drawn`; they sum to 30 % of the words, rounded up.

    They are not more than the words in them, so that there is room for all with a word between any two.

    >>> span_lengths(10, [2, 0, 6]), span_lengths(4, [0, 0, 1, 0, 4])
    ([2, 0, 1], [1, 1])
    """
    rest = wanted = -(-PERCENT * n_words // 100)
    spans: list[int] = []
    lengths = iter(drawn)
    while rest:
        spans.append(min(next(lengths), rest))
        rest -= spans[-1]
    while len(spans) > wanted:
        spans.remove(0)
    return spans


def poisson_lengths(generator: np.random.Generator) -> Iterator[int]:
    """Lengths of spans without end."""
    while True:
        yield from generator.poisson(MEAN_SPAN, 8).tolist()


def replace_with_masks(
    words: Sequence[Sequence[int]], spans: Sequence[int], gaps: Sequence[int], mask_id: int
) -> list[int]:
    """The ids of a text in which each span of words is one mask.

    Args:
        words: ids of each.
        spans: how many words each mask stands for.
        gaps: how many words that are kept stand before each mask; rising.

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

"""Masked language modelling (BERT, arXiv:1810.04805, section 3.1).

15 % of the tokens of a block are predicted. 80 % of these are replaced by the mask token, 10 % by a random token, and
10 % stay. As in RoBERTa (arXiv:1907.11692, sections 4.1 and 4.2) masking is dynamic: the choice is a function of (seed,
epoch, start of the block), so it differs in every epoch and a resumed run is identical. Blocks are full, run over the
ends of documents, and there is no next-sentence prediction. Lines that are sequences of their own are padded instead.

Deviation: special tokens are neither chosen nor used as random tokens. Batches are in `masked_sequences`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headwise.errors import UserError
from headwise.text.prepared.batch_planning import Rows
from headwise.text.tokens.tokenizer import Tokenizer

MASKED, REPLACED = 0.8, 0.1  # shares of the predicted tokens; the rest stay
MASK_NAMES = ("[MASK]", "<mask>")
BYTE = "<0x[0-9A-F]{2}>"


def mask_id(tokenizer: Tokenizer) -> int:
    """The id of the mask token of a tokenizer trained here; `UserError` if it has none."""
    found = next((i for name in MASK_NAMES if (i := tokenizer.backend.token_to_id(name)) is not None), None)
    if found is None:
        raise UserError(f"the tokenizer has no mask token ({' or '.join(MASK_NAMES)})")
    return found


@dataclass(frozen=True)
class Masking:
    """Chooses and masks tokens of a text."""

    mask_id: int
    maskable: Rows  # ids that may be masked, and serve as random tokens: all but special tokens
    share: float = 0.15
    edges: "WordEdges | None" = None  # for whole-word masking
    shares: tuple[float, float] = (MASKED, REPLACED)  # of the predicted tokens

    def __call__(
        self, tokens: NDArray[np.int64], generator: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The masked tokens, and the positions to predict."""
        words = number_words(tokens, np.isin(tokens, self.maskable), self.edges)
        positions = choose_positions(words, generator.permutation(int(words.max(initial=-1)) + 1), self.share)
        uniform, random_tokens = generator.random(len(positions)), generator.choice(self.maskable, len(positions))
        return mask_tokens(tokens, positions, uniform, random_tokens, self.mask_id, self.shares), positions


@dataclass(frozen=True)
class WordEdges:
    """For each id, whether its piece begins and ends with a letter or digit; two such edges join tokens to one word."""

    begins: NDArray[np.bool_]
    ends: NDArray[np.bool_]


def word_edges(pieces: Iterable[str]) -> WordEdges:
    """From readable pieces in the order of their ids: spaces as `▁`, bytes as `<0xE3>`.

    >>> word_edges(["▁dog", "s", ".", "<0xE3>"])
    WordEdges(begins=array([False,  True, False,  True]), ends=array([ True,  True, False,  True]))
    """
    letters = [re.sub(BYTE, "x", piece) or " " for piece in pieces]
    return WordEdges(*(np.array([letter[at].isalnum() for letter in letters]) for at in (0, -1)))


def number_words(tokens: NDArray[np.int64], known: NDArray[np.bool_], edges: WordEdges | None) -> NDArray[np.int64]:
    """The word number of each token, -1 where not `known`; without `edges` each token is a word.

    >>> edges = word_edges(["▁dog", "s", "."])
    >>> number_words(np.array([0, 1, 2, 0, 1, 1]), np.array([1, 1, 1, 1, 0, 1], bool), edges)
    array([ 0,  0,  1,  2, -1,  3])
    """
    first = known.copy()
    if edges is not None:
        first[1:] &= ~(known[:-1] & edges.ends[tokens[:-1]] & edges.begins[tokens[1:]])
    return np.where(known, np.cumsum(first) - 1, -1)


def choose_positions(words: NDArray[np.int64], order: NDArray[np.int64], share: float) -> NDArray[np.int64]:
    """Positions of the first words of `order`: at least one word, and at most `share` of all tokens.

    >>> choose_positions(np.array([-1, 0, 0, 1, 2, 3, -1]), order=np.array([2, 0, 1, 3]), share=0.6)
    array([1, 2, 4])
    """
    known = words >= 0
    limit = max(1, round(share * int(known.sum())))
    taken = np.cumsum(np.bincount(words[known], minlength=len(order))[order]) <= limit
    taken[:1] = True
    return np.flatnonzero(known & np.isin(words, order[taken]))


def mask_tokens(
    tokens: NDArray[np.int64],
    positions: NDArray[np.int64],
    uniform: NDArray[np.float64],
    random_tokens: Rows,
    mask_id: int,
    shares: tuple[float, float] = (MASKED, REPLACED),
) -> NDArray[np.int64]:
    """Mask, replace or keep the tokens at `positions`; numbers `uniform` in [0, 1) decide which.

    >>> uniform, random_tokens = np.array([0.79, 0.81, 0.91]), np.array([1, 2, 3])
    >>> mask_tokens(np.array([5, 6, 7, 8]), np.array([0, 2, 3]), uniform, random_tokens, mask_id=0)
    array([0, 6, 2, 8])
    """
    noisy = tokens.copy()
    masked, replaced = shares
    others = np.where(uniform < masked + replaced, random_tokens, tokens[positions])
    noisy[positions] = np.where(uniform < masked, mask_id, others)
    return noisy

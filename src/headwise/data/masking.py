"""Masked language modelling (BERT, arXiv:1810.04805, section 3.1): what of a block is hidden, and is to be told.

15 % of the pieces of a block are chosen; 80 % of these are read as the mask, 10 % as a piece drawn at random, and 10 %
as what they are, for nothing is masked where such a network is used. As in RoBERTa (arXiv:1907.11692, sections 4.1 and
4.2) the choice is another one in every epoch, a function of (seed, epoch, where the block begins), so that a resumed
run sees the same; blocks are full, run over the ends of documents, and there is no next sentence to guess.

Deviations: marks are neither chosen nor drawn in the place of others. Not here: reading and tokenising (`documents`).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from headwise.data.batch_planning import Rows
from headwise.data.blocks import TokenBlocks, fixed_noised_blocks, noised_block_stream
from headwise.data.stream import EndlessStream
from headwise.data.tokenizer import Tokenizer
from headwise.errors import UserError

MASKED, REPLACED = 0.8, 0.1  # of the pieces chosen; the rest stay as they are
MASK_NAMES = ("[MASK]", "<mask>")  # how vocabularies call it
BYTE = "<0x[0-9A-F]{2}>"


def mask_id(tokenizer: Tokenizer) -> int:
    """The mask of a tokenizer of ours; `UserError` where it has none."""
    found = next((i for name in MASK_NAMES if (i := tokenizer.backend.token_to_id(name)) is not None), None)
    if found is None:
        raise UserError(f"the tokenizer has no piece {' or '.join(MASK_NAMES)}, with which pieces are masked")
    return found


@dataclass(frozen=True)
class MaskedBatch(TokenBlocks):
    """Blocks of running text of one length, with some pieces hidden."""

    places: Int[Tensor, " chosen"]  # of what is to be told, in `src.flatten()`
    targets: Int[Tensor, " chosen"]  # what stood there

    @property
    def n_targets(self) -> int:
        """Pieces that are to be told."""
        return self.targets.numel()


@dataclass(frozen=True)
class Masking:
    """What is hidden of a text in the pieces of one vocabulary."""

    mask_id: int
    pieces: Rows  # ids that may be chosen, and drawn in the place of others: all but marks
    share: float = 0.15
    joints: "WordEdges | None" = None  # where whole words are chosen
    shares: tuple[float, float] = (MASKED, REPLACED)  # of the pieces chosen

    def __call__(
        self, tokens: NDArray[np.int64], generator: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """What is read of the tokens, and the places of those to tell."""
        words = number_words(tokens, np.isin(tokens, self.pieces), self.joints)
        places = choose_positions(words, generator.permutation(int(words.max(initial=-1)) + 1), self.share)
        draws, pieces = generator.random(len(places)), generator.choice(self.pieces, len(places))
        return mask_tokens(tokens, places, draws, pieces, self.mask_id, self.shares), places


@dataclass(frozen=True)
class WordEdges:
    """By id, which pieces begin, and which end, with a letter or digit: one behind the other, such are of one word."""

    begins: NDArray[np.bool_]
    ends: NDArray[np.bool_]


def word_edges(pieces: Iterable[str]) -> WordEdges:
    """Of pieces in the order of their ids, as people read them: blanks as `▁`, bytes as `<0xE3>`.

    >>> word_edges(["▁dog", "s", ".", "<0xE3>"])
    WordEdges(begins=array([False,  True, False,  True]), ends=array([ True,  True, False,  True]))
    """
    letters = [re.sub(BYTE, "x", piece) or " " for piece in pieces]
    return WordEdges(*(np.array([letter[at].isalnum() for letter in letters]) for at in (0, -1)))


def number_words(tokens: NDArray[np.int64], known: NDArray[np.bool_], joints: WordEdges | None) -> NDArray[np.int64]:
    """The number of the word that each token is of, -1 for what is not `known`; without `joints` each is a word.

    >>> joints = word_edges(["▁dog", "s", "."])
    >>> number_words(np.array([0, 1, 2, 0, 1, 1]), np.array([1, 1, 1, 1, 0, 1], bool), joints)
    array([ 0,  0,  1,  2, -1,  3])
    """
    first = known.copy()
    if joints is not None:
        first[1:] &= ~(known[:-1] & joints.ends[tokens[:-1]] & joints.begins[tokens[1:]])
    return np.where(known, np.cumsum(first) - 1, -1)


def choose_positions(words: NDArray[np.int64], order: NDArray[np.int64], share: float) -> NDArray[np.int64]:
    """Places of the words that come first in `order`, one at least and no more than have room in `share` of all.

    >>> choose_positions(np.array([-1, 0, 0, 1, 2, 3, -1]), order=np.array([2, 0, 1, 3]), share=0.6)
    array([1, 2, 4])
    """
    known = words >= 0
    room = max(1, round(share * int(known.sum())))
    taken = np.cumsum(np.bincount(words[known], minlength=len(order))[order]) <= room
    taken[:1] = True
    return np.flatnonzero(known & np.isin(words, order[taken]))


def mask_tokens(
    tokens: NDArray[np.int64],
    places: NDArray[np.int64],
    draws: NDArray[np.float64],
    pieces: Rows,
    mask_id: int,
    shares: tuple[float, float] = (MASKED, REPLACED),
) -> NDArray[np.int64]:
    """What is read where these places are to be told; of each a number `draws` says how, `pieces` what may stand there.

    >>> mask_tokens(np.array([5, 6, 7, 8]), np.array([0, 2, 3]), np.array([0.79, 0.81, 0.91]),
    ...             np.array([1, 2, 3]), mask_id=0)
    array([0, 6, 2, 8])
    """
    read = tokens.copy()
    masked, replaced = shares
    kept = np.where(draws < masked + replaced, pieces, tokens[places])
    read[places] = np.where(draws < masked, mask_id, kept)
    return read


@dataclass(frozen=True)
class MaskedText:
    """Running text in blocks with the marks of its vocabulary around each, some of it hidden."""

    tokens: NDArray[np.int32]
    length: int  # of a block, with its marks
    before: Sequence[int]
    behind: Sequence[int]
    masking: Masking

    @property
    def room(self) -> int:
        """Tokens of the text in a block."""
        return self.length - len(self.before) - len(self.behind)

    def load(self, starts: Rows, length: int, seed: int, epoch: int) -> MaskedBatch:
        """Blocks of `length` tokens of the text, from each of `starts` on, as they are read in an epoch."""
        blocks = [self._block(int(start), length) for start in starts]
        hidden = [
            self.masking(block, np.random.default_rng([seed, epoch, int(start) + 1]))
            for block, start in zip(blocks, starts, strict=True)
        ]
        src = np.stack([read for read, _ in hidden])
        places = np.concatenate([row * src.shape[1] + chosen for row, (_, chosen) in enumerate(hidden)])
        return MaskedBatch(*map(torch.from_numpy, (src, places, np.stack(blocks).ravel()[places])))

    def _block(self, start: int, length: int) -> NDArray[np.int64]:
        return np.array([*self.before, *self.tokens[start : start + length], *self.behind], np.int64)

    def stream(
        self, tokens_per_batch: int, seed: int, state: Mapping[str, int] | None = None, pin: bool = False
    ) -> EndlessStream[MaskedBatch]:
        """Training batches without end, from `state` on."""
        load = partial(self.load, length=self.room, seed=seed)
        return noised_block_stream(load, len(self.tokens), self.room, tokens_per_batch, seed, state, pin)

    def fixed(self, tokens_per_batch: int) -> Iterator[MaskedBatch]:
        """The whole text once, always with the same pieces hidden; the last block is as long as it is."""
        return fixed_noised_blocks(self.load, len(self.tokens), self.room, tokens_per_batch)

"""Masked language modelling (BERT, arXiv:1810.04805, section 3.1).

15 % of the tokens of a block are predicted. 80 % of these are replaced by the mask token, 10 % by a random token, and
10 % stay. As in RoBERTa (arXiv:1907.11692, sections 4.1 and 4.2) masking is dynamic: the choice is a function of (seed,
epoch, start of the block), so it differs in every epoch and a resumed run is identical. Blocks are full, run over the
ends of documents, and there is no next-sentence prediction. Lines that are sequences of their own are padded instead.

Deviation: special tokens are neither chosen nor used as random tokens.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from headwise.data.batch import DeviceBatch, pad
from headwise.data.batch_planning import Rows, cut_padded, plan_batches
from headwise.data.blocks import VALIDATION_EPOCH, VALIDATION_SEED, NoisyBlocks, TokenBlocks
from headwise.data.documents import PreparedText
from headwise.data.stream import EndlessStream, batches_of_epochs
from headwise.data.tokenizer import Tokenizer
from headwise.errors import UserError

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
class MaskedBatch(TokenBlocks):
    """Blocks of one length, with some tokens masked."""

    positions: Int[Tensor, " chosen"]  # of the predicted tokens in `src.flatten()`
    targets: Int[Tensor, " chosen"]  # the original tokens there

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The inputs of an encoder."""
        return (self.src,)

    @property
    def n_targets(self) -> int:
        return self.targets.numel()


@dataclass(frozen=True)
class MaskedLineBatch(DeviceBatch):
    """Sequences, padded on the right, with some tokens masked."""

    src: Int[Tensor, "batch src_len"]
    src_mask: Bool[Tensor, "batch src_len"]  # True on real tokens
    positions: Int[Tensor, " chosen"]  # of the predicted tokens in `src.flatten()`
    targets: Int[Tensor, " chosen"]  # the original tokens there
    n_real: int

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The inputs of an encoder."""
        return self.src, self.src_mask

    @property
    def n_targets(self) -> int:
        return self.targets.numel()

    @property
    def n_tokens(self) -> int:
        return self.n_real

    @property
    def n_cells(self) -> int:
        return self.src.numel()

    @property
    def extent(self) -> str:
        rows, length = self.src.shape
        return f"{rows} sequences, {length} tokens long"


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


@dataclass(frozen=True)
class MaskedText(NoisyBlocks[MaskedBatch]):
    """Running text in blocks with special tokens around each, some tokens masked."""

    tokens: NDArray[np.int32]
    length: int  # of a block, with its special tokens
    prefix: Sequence[int]  # special tokens before a block
    suffix: Sequence[int]  # and after it
    masking: Masking

    @property
    def text_length(self) -> int:
        return self.length - len(self.prefix) - len(self.suffix)

    def load(self, starts: Rows, length: int, seed: int, epoch: int) -> MaskedBatch:
        blocks = [
            np.array([*self.prefix, *self.tokens[start : start + length], *self.suffix], np.int64) for start in starts
        ]
        masked = [
            self.masking(block, np.random.default_rng([seed, epoch, int(start) + 1]))
            for block, start in zip(blocks, starts, strict=True)
        ]
        src = np.stack([noisy for noisy, _ in masked])
        positions = np.concatenate([row * src.shape[1] + chosen for row, (_, chosen) in enumerate(masked)])
        return MaskedBatch(*map(torch.from_numpy, (src, positions, np.stack(blocks).ravel()[positions])))


@dataclass(frozen=True)
class MaskedLines:
    """Sequences with special tokens around each, some tokens masked; one that is too long is read in parts."""

    tokens: NDArray[np.int32]
    starts: Rows  # of the sequences, or their parts, in `tokens`
    lengths: Rows  # without special tokens
    prefix: Sequence[int]  # special tokens before a sequence
    suffix: Sequence[int]  # and after it
    masking: Masking
    pad_id: int

    def load(self, rows: Rows, seed: int, epoch: int) -> MaskedLineBatch:
        """The batch of some sequences, with the masks of an epoch."""
        places = [(int(self.starts[row]), int(self.lengths[row])) for row in rows]
        lines = [
            np.array([*self.prefix, *self.tokens[start : start + length], *self.suffix], np.int64)
            for start, length in places
        ]
        masked = [
            self.masking(line, np.random.default_rng([seed, epoch, start + 1]))
            for line, (start, _) in zip(lines, places, strict=True)
        ]
        src, mask = pad([noisy.astype(np.int32) for noisy, _ in masked], self.pad_id)
        positions = np.concatenate([row * src.shape[1] + chosen for row, (_, chosen) in enumerate(masked)])
        targets = np.concatenate([line[chosen] for line, (_, chosen) in zip(lines, masked, strict=True)])
        return MaskedLineBatch(*map(torch.from_numpy, (src, mask, positions, targets)), n_real=int(mask.sum()))

    def stream(
        self, tokens_per_batch: int, seed: int, state: Mapping[str, int] | None = None, pin: bool = False
    ) -> EndlessStream[MaskedLineBatch]:
        """An endless stream of training batches of sequences of similar length, resumed from `state`."""
        lengths = self._read_lengths

        def plan(epoch: int) -> list[tuple[int, Rows]]:
            batches = plan_batches(lengths, lengths, tokens_per_batch, seed, epoch, largest_first=epoch == 0)
            return [(epoch, rows) for rows in batches]

        def load(part: tuple[int, Rows]) -> MaskedLineBatch:
            return self.load(part[1], seed, part[0])

        return EndlessStream(lambda start: batches_of_epochs(plan, load, start), state, pin=pin)

    def fixed(self, tokens_per_batch: int) -> Iterator[MaskedLineBatch]:
        """All sequences once, with the same masks every time, for validation."""
        order = np.argsort(self.lengths, kind="stable")
        for rows in cut_padded(order, self._read_lengths[order], tokens_per_batch):
            yield self.load(rows, VALIDATION_SEED, VALIDATION_EPOCH)

    @property
    def _read_lengths(self) -> Rows:
        return self.lengths + len(self.prefix) + len(self.suffix)


def split_lines(ends: NDArray[np.int64], room: int) -> tuple[Rows, Rows]:
    """Start and length of each part of at most `room` tokens of sequences that end at `ends`.

    >>> [part.tolist() for part in split_lines(np.array([2, 7, 7]), room=3)]
    [[0, 2, 5], [2, 3, 2]]
    """
    begins = np.concatenate([[0], ends[:-1]])
    parts = -(-(ends - begins) // room)
    number = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
    starts = np.repeat(begins, parts) + room * number
    return starts, np.minimum(np.repeat(ends, parts) - starts, room)


def masked_sequences(
    text: PreparedText,
    length: int,
    around: tuple[Sequence[int], Sequence[int]],
    masking: Masking,
    by_line: bool = False,
    pad_id: int = 0,
) -> MaskedText | MaskedLines:
    """Text in sequences of at most `length` tokens, with the special tokens `around` each: blocks, or its documents."""
    if not by_line:
        return MaskedText(text.tokens, length, *around, masking)
    places = split_lines(text.ends, length - sum(map(len, around)))
    return MaskedLines(text.tokens, *places, *around, masking, pad_id)

"""Batches of text with masked tokens: running text in full blocks, or lines that are sequences of their own, padded.

Which tokens are masked is in `masking`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from headwise.core.batches import PaddedBatch, pad
from headwise.pytorch.data.blocks import VALIDATION_EPOCH, VALIDATION_SEED, NoisyBlocks, TokenBlocks
from headwise.pytorch.data.stream import ALL_BATCHES, BatchShare, EndlessStream, batches_of_epochs
from headwise.text.files.documents import PreparedText
from headwise.text.prepared.batch_planning import Rows, cut_padded, plan_batches
from headwise.text.prepared.masking import Masking


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
class MaskedLineBatch(PaddedBatch):
    """Sequences, padded on the right, with some tokens masked."""

    src: Int[Tensor, "batch src_len"]
    src_mask: Bool[Tensor, "batch src_len"]  # True on real tokens
    positions: Int[Tensor, " chosen"]  # of the predicted tokens in `src.flatten()`
    targets: Int[Tensor, " chosen"]  # the original tokens there
    n_real: int

    @property
    def n_targets(self) -> int:
        return self.targets.numel()

    @property
    def extent(self) -> str:
        rows, length = self.src.shape
        return f"{rows} sequences, {length} tokens long"


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
        self, tokens_per_batch: int, seed: int, state: Mapping[str, int] | None = None, share: BatchShare = ALL_BATCHES
    ) -> EndlessStream[MaskedLineBatch]:
        """An endless stream of training batches of sequences of similar length, resumed from `state`."""
        lengths = self._read_lengths

        def plan(epoch: int) -> list[tuple[int, Rows]]:
            batches = plan_batches(lengths, lengths, tokens_per_batch, seed, epoch, largest_first=epoch == 0)
            return [(epoch, rows) for rows in batches]

        def load(part: tuple[int, Rows]) -> MaskedLineBatch:
            return self.load(part[1], seed, part[0])

        return EndlessStream(lambda start: batches_of_epochs(plan, load, start), state, share)

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

"""Running text in blocks of fixed length, and batches of blocks without padding.

A language model predicts the next token at every position, so a block holds one token more than its length. Blocks are
contiguous and run over the ends of documents. Every epoch starts at another offset and shuffles the blocks, as a
function of (seed, epoch), so a resumed stream continues exactly. Reading and tokenising text is in `documents`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Generic

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from headwise.core.batches import UnpaddedBatch
from headwise.pytorch.data.stream import ALL_BATCHES, AnyBatch, BatchShare, EndlessStream, batches_of_epochs
from headwise.text.prepared.batch_planning import Rows

VALIDATION_SEED, VALIDATION_EPOCH = 0, 0  # of the noise in validation blocks


@dataclass(frozen=True)
class TokenBlocks(UnpaddedBatch):
    """Blocks of one length, for an encoder."""

    src: Int[Tensor, "blocks length"]

    @property
    def n_tokens(self) -> int:
        return self.src.numel()

    @property
    def extent(self) -> str:
        blocks, length = self.src.shape
        return f"{blocks} blocks of {length} tokens"


@dataclass(frozen=True)
class BlockBatch(UnpaddedBatch):
    """Blocks of one length, for a decoder."""

    tokens: Int[Tensor, "blocks length_and_one"]

    @property
    def tgt_in(self) -> Int[Tensor, "blocks length"]:
        return self.tokens[:, :-1]

    @property
    def tgt_out(self) -> Int[Tensor, "blocks length"]:
        return self.tokens[:, 1:]

    @property
    def n_targets(self) -> int:
        return self.tgt_out.numel()

    @property
    def n_tokens(self) -> int:
        return self.n_targets

    @property
    def extent(self) -> str:
        blocks, length = self.tgt_out.shape
        return f"{blocks} blocks of {length} tokens"


def plan_blocks(n_tokens: int, length: int, tokens_per_batch: int, seed: int, epoch: int) -> list[Rows]:
    """The batches of one epoch, as start positions of blocks; a few tokens at both ends of the text may be skipped.

    A batch has as many blocks as fit into `tokens_per_batch`, at least one; the last batch has the rest.
    """
    assert n_tokens > length, "the text must hold a block and the token after it"
    generator = np.random.default_rng([seed, epoch])
    offset = int(generator.integers(min(length, n_tokens - length)))
    starts = offset + length * generator.permutation((n_tokens - 1 - offset) // length)
    rows = max(1, tokens_per_batch // length)
    return [starts[at : at + rows] for at in range(0, len(starts), rows)]


def load_blocks(tokens: NDArray[np.int32], starts: Rows, length: int) -> BlockBatch:
    """The blocks at these start positions.

    >>> load_blocks(np.arange(9, dtype=np.int32), np.array([4, 0]), 3).tokens.tolist()
    [[4, 5, 6, 7], [0, 1, 2, 3]]
    """
    return BlockBatch(torch.from_numpy(tokens[starts[:, None] + np.arange(length + 1)].astype(np.int64)))


def block_stream(
    tokens: NDArray[np.int32],
    length: int,
    tokens_per_batch: int,
    seed: int,
    state: Mapping[str, int] | None = None,
    share: BatchShare = ALL_BATCHES,
) -> EndlessStream[BlockBatch]:
    """An endless stream of training batches, resumed from `state`."""

    def plan(epoch: int) -> list[Rows]:
        return plan_blocks(len(tokens), length, tokens_per_batch, seed, epoch)

    return EndlessStream(
        lambda start: batches_of_epochs(plan, lambda starts: load_blocks(tokens, starts, length), start), state, share
    )


def validation_blocks(tokens: NDArray[np.int32], length: int, tokens_per_batch: int) -> Iterator[BlockBatch]:
    """Fixed blocks that predict every token but the first once; the last block may be shorter."""
    starts = length * np.arange((len(tokens) - 1) // length)
    rows = max(1, tokens_per_batch // length)
    for at in range(0, len(starts), rows):
        yield load_blocks(tokens, starts[at : at + rows], length)
    if rest := (len(tokens) - 1) % length:
        yield load_blocks(tokens, np.array([length * len(starts)]), rest)


class NoisyBlocks(Generic[AnyBatch]):
    """Running text in blocks that get other noise in every epoch."""

    tokens: NDArray[np.int32]

    @property
    def text_length(self) -> int:
        """Tokens of the text in a block, without special tokens."""
        raise NotImplementedError

    def load(self, starts: Rows, length: int, seed: int, epoch: int) -> AnyBatch:
        """Blocks of `length` tokens of the text from each of `starts`, with the noise of an epoch."""
        raise NotImplementedError

    def stream(
        self, tokens_per_batch: int, seed: int, state: Mapping[str, int] | None = None, share: BatchShare = ALL_BATCHES
    ) -> EndlessStream[AnyBatch]:
        """An endless stream of training batches, resumed from `state`."""
        length = self.text_length

        def plan(epoch: int) -> list[tuple[int, Rows]]:
            return [(epoch, starts) for starts in plan_blocks(len(self.tokens), length, tokens_per_batch, seed, epoch)]

        def load(part: tuple[int, Rows]) -> AnyBatch:
            return self.load(part[1], length, seed, part[0])

        return EndlessStream(lambda start: batches_of_epochs(plan, load, start), state, share)

    def fixed(self, tokens_per_batch: int) -> Iterator[AnyBatch]:
        """The whole text once, with the same noise every time, for validation; the last block may be shorter."""
        length = self.text_length
        n_blocks, rest = divmod(len(self.tokens), length)
        starts, rows = length * np.arange(n_blocks), max(1, tokens_per_batch // length)
        for at in range(0, n_blocks, rows):
            yield self.load(starts[at : at + rows], length, VALIDATION_SEED, VALIDATION_EPOCH)
        if rest:
            yield self.load(np.array([length * n_blocks]), rest, VALIDATION_SEED, VALIDATION_EPOCH)

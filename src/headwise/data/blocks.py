"""Running text in blocks of one length, and batches of blocks: nothing of them is padding.

A block is read token by token, and after each of them the next one is predicted; so it is one token longer than what is
read. Blocks stand side by side, whatever documents they are of: over a mark that ends one the next is read on. Every
epoch begins at another token, so that blocks begin and end elsewhere, and has them in another order; both are a
function of (seed, epoch), so that a stream goes on where it was (`batching.EndlessStream`). Not here: reading and
tokenising (`documents`).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from headwise.data.batch import UnpaddedBatch
from headwise.data.batch_planning import Rows
from headwise.data.stream import AnyBatch, EndlessStream, batches_of_epochs

FIXED = 0, 0  # seed and epoch of the noise that a validation has


@dataclass(frozen=True)
class TokenBlocks(UnpaddedBatch):
    """Blocks of running text of one length, all of which is read: nothing is padding."""

    src: Int[Tensor, "blocks length"]  # what is read

    @property
    def n_tokens(self) -> int:
        """What speed is counted in."""
        return self.src.numel()

    @property
    def extent(self) -> str:
        """How large it is, in words."""
        blocks, length = self.src.shape
        return f"{blocks} blocks of {length} tokens"


@dataclass(frozen=True)
class BlockBatch(UnpaddedBatch):
    """Blocks of running text."""

    tokens: Int[Tensor, "blocks length_and_one"]

    @property
    def tgt_in(self) -> Int[Tensor, "blocks length"]:
        """What is read."""
        return self.tokens[:, :-1]

    @property
    def tgt_out(self) -> Int[Tensor, "blocks length"]:
        """What follows each token that is read."""
        return self.tokens[:, 1:]

    @property
    def n_targets(self) -> int:
        """Tokens that are predicted."""
        return self.tgt_out.numel()

    @property
    def n_tokens(self) -> int:
        """The same: what speed is counted in."""
        return self.n_targets

    @property
    def extent(self) -> str:
        """How large it is, in words."""
        blocks, length = self.tgt_out.shape
        return f"{blocks} blocks of {length} tokens"


def plan_blocks(n_tokens: int, length: int, tokens_per_batch: int, seed: int, epoch: int) -> list[Rows]:
    """The batches of one epoch, as the tokens that blocks begin at; all are read once, but for some at both ends.

    There are as many blocks in a batch as `tokens_per_batch` has room for, one at least; the last has what is left.
    """
    assert n_tokens > length, "a text holds a block and what follows it"
    generator = np.random.default_rng([seed, epoch])
    begin = int(generator.integers(min(length, n_tokens - length)))
    starts = begin + length * generator.permutation((n_tokens - 1 - begin) // length)
    rows = max(1, tokens_per_batch // length)
    return [starts[at : at + rows] for at in range(0, len(starts), rows)]


def load_blocks(tokens: NDArray[np.int32], starts: Rows, length: int) -> BlockBatch:
    """The blocks that begin at those tokens.

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
    pin: bool = False,
) -> EndlessStream[BlockBatch]:
    """Training batches without end, from `state` on."""

    def plan(epoch: int) -> list[Rows]:
        return plan_blocks(len(tokens), length, tokens_per_batch, seed, epoch)

    return EndlessStream(
        lambda start: batches_of_epochs(plan, lambda starts: load_blocks(tokens, starts, length), start), state, pin=pin
    )


def validation_blocks(tokens: NDArray[np.int32], length: int, tokens_per_batch: int) -> Iterator[BlockBatch]:
    """Every token but the first predicted once, always in the same blocks; the last block is as long as it is."""
    whole = length * np.arange((len(tokens) - 1) // length)
    rows = max(1, tokens_per_batch // length)
    for at in range(0, len(whole), rows):
        yield load_blocks(tokens, whole[at : at + rows], length)
    if rest := (len(tokens) - 1) % length:
        yield load_blocks(tokens, np.array([length * len(whole)]), rest)


# --- Blocks that something is done to before they are read, another thing in every epoch


def noised_block_stream(
    load: Callable[..., AnyBatch],
    n_tokens: int,
    room: int,
    tokens_per_batch: int,
    seed: int,
    state: Mapping[str, int] | None = None,
    pin: bool = False,
) -> EndlessStream[AnyBatch]:
    """Batches without end of blocks of `room` tokens; `load` makes one of where they begin and the `epoch`."""

    def plan(epoch: int) -> list[tuple[int, Rows]]:
        return [(epoch, starts) for starts in plan_blocks(n_tokens, room, tokens_per_batch, seed, epoch)]

    def load_part(part: tuple[int, Rows]) -> AnyBatch:
        return load(part[1], epoch=part[0])

    return EndlessStream(lambda start: batches_of_epochs(plan, load_part, start), state, pin=pin)


def fixed_noised_blocks(
    load: Callable[[Rows, int, int, int], AnyBatch], n_tokens: int, room: int, tokens_per_batch: int
) -> Iterator[AnyBatch]:
    """Every token of a text once, always with the same noise; the last block is as long as it is.

    `load` makes a batch of where its blocks begin, their length, a seed and an epoch.
    """
    whole, rest = divmod(n_tokens, room)
    starts, rows = room * np.arange(whole), max(1, tokens_per_batch // room)
    for at in range(0, whole, rows):
        yield load(starts[at : at + rows], room, *FIXED)
    if rest:
        yield load(np.array([room * whole]), rest, *FIXED)

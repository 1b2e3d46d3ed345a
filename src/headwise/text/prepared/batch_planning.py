"""The grouping of pairs into batches by number of tokens (section 5.1 of the paper).

The paper batches pairs of similar length, because padding costs time. Pairs of similar length are also similar in other
ways, so the gradient of such a batch is noisier than that of a random batch of the same size. Therefore batches are
sampled at random where padding is free (`pytorch/training/packed.py`). Otherwise pairs are bucketed by length, within a
window of a few batches only. The plan of an epoch is a pure function of (seed, epoch).
"""

from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from headwise.text.files.sources import Pair
from headwise.text.tokens.pair_tokenizer import Tokens

Lengths = NDArray[np.integer]
Rows = NDArray[np.int64]
Noise = Callable[[Tokens, int, int], Tokens]  # (source, epoch, row of the corpus) -> noisy source

PART = 1 << 20  # pairs planned at once, some fifty bytes each; limits memory for large corpora
WINDOW_BATCHES = 16  # a window for sorting by length holds this many batches; larger: less padding, less random
RANDOM_BATCH_LIMIT = 16  # rows x longest side of a random batch is at most this multiple of its budget


@runtime_checkable
class Pairs(Protocol):
    """A tokenised parallel corpus; `PreparedCorpus` documents the members."""

    @property
    def src_lengths(self) -> Lengths: ...
    @property
    def tgt_lengths(self) -> Lengths: ...
    def src(self, row: int) -> Tokens: ...
    def tgt(self, row: int) -> Tokens: ...
    def text(self, row: int) -> Pair: ...
    def in_epoch(self, epoch: int) -> "Pairs": ...  # a mixture of corpora samples other pairs in every epoch


def plan_epoch(
    src_lengths: Lengths,
    tgt_lengths: Lengths,
    tokens_per_batch: int,
    seed: int,
    epoch: int,
    bucketed: bool = True,
    part: int = PART,
) -> Iterator[list[Rows]]:
    """The batches of one epoch as in `plan_batches`, planned for about `part` pairs at a time.

    A part of a larger corpus is every k-th pair, so that all parts are alike even if the files are sorted. Epoch 0
    starts with the largest batch of the part that has the longest pair.
    """
    n_parts = -(-len(src_lengths) // part)
    if n_parts <= 1:
        yield plan_batches(src_lengths, tgt_lengths, tokens_per_batch, seed, epoch, bucketed, largest_first=epoch == 0)
        return
    order = np.random.default_rng([seed, epoch]).permutation(n_parts).tolist()
    if epoch == 0:
        longest = [max(lengths[i::n_parts].max() for lengths in (src_lengths, tgt_lengths)) for i in range(n_parts)]
        order.sort(key=lambda i: i != int(np.argmax(longest)))  # stable: the others keep their order
    for i in order:
        generator = np.random.default_rng([seed, epoch, i])
        first = epoch == 0 and i == order[0]
        lengths = src_lengths[i::n_parts], tgt_lengths[i::n_parts]
        batches = shuffle_into_batches(*lengths, tokens_per_batch, generator, bucketed, first)
        yield [rows * n_parts + i for rows in batches]


def plan_batches(
    src_lengths: Lengths,
    tgt_lengths: Lengths,
    tokens_per_batch: int,
    seed: int,
    epoch: int,
    bucketed: bool = True,
    largest_first: bool = False,
) -> list[Rows]:
    """The batches of one epoch as rows of the corpus: every pair once, in an order that depends on (seed, epoch).

    Args:
        src_lengths: tokens of every source, with EOS.
        tgt_lengths: tokens of every target, with EOS.
        tokens_per_batch: limit of rows x longest side if `bucketed`, otherwise of the target tokens of a batch. A pair
            above the limit gets a batch of its own.
        bucketed: group pairs of similar length; otherwise sample them at random.
        largest_first: start with the batch that needs the most memory, so that out-of-memory errors come at once.
    """
    generator = np.random.default_rng([seed, epoch])
    return shuffle_into_batches(src_lengths, tgt_lengths, tokens_per_batch, generator, bucketed, largest_first)


def shuffle_into_batches(
    src_lengths: Lengths,
    tgt_lengths: Lengths,
    tokens_per_batch: int,
    generator: np.random.Generator,
    bucketed: bool = True,
    largest_first: bool = False,
) -> list[Rows]:
    """`plan_batches` with a random generator instead of a seed."""
    longest = np.maximum(src_lengths, tgt_lengths)
    order = generator.permutation(len(longest))
    if bucketed:
        order = sort_by_length_in_windows(order, longest, WINDOW_BATCHES * tokens_per_batch)
    limit = tokens_per_batch if bucketed else RANDOM_BATCH_LIMIT * tokens_per_batch
    batches = cut_into_batches(order, tgt_lengths[order], longest[order], tokens_per_batch, limit)
    plan = [batches[i] for i in generator.permutation(len(batches))]
    if largest_first:
        sizes = [_computed_positions(rows, src_lengths, tgt_lengths, bucketed) for rows in plan]
        plan.insert(0, plan.pop(int(np.argmax(sizes))))
    return plan


def sort_by_length_in_windows(order: Rows, longest: Lengths, window: int) -> Rows:
    """`order` with every window of about `window` tokens sorted by length, ascending and descending in turn.

    >>> sort_by_length_in_windows(np.arange(6), np.array([3, 1, 2, 1, 3, 2]), window=6).tolist()
    [1, 2, 0, 4, 5, 3]
    """
    longest = longest[order]
    windows = (np.cumsum(longest, dtype=np.int64) - 1) // window
    return order[np.lexsort((np.where(windows % 2, -longest.astype(np.int64), longest), windows))]


def cut_into_batches(order: Rows, tokens: Lengths, longest: Lengths, budget: int, limit: int) -> list[Rows]:
    """Cut rows into the longest runs with at most `budget` tokens and rows x longest <= `limit`."""
    ends = np.concatenate([[0], np.cumsum(tokens, dtype=np.int64)])
    batches, start = [], 0
    while start < len(order):
        stop = int(np.searchsorted(ends, ends[start] + budget, side="right")) - 1
        widths = np.maximum.accumulate(longest[start : max(stop, start + 1)]).astype(np.int64)
        fitting = int(np.searchsorted(widths * np.arange(1, len(widths) + 1), limit, side="right"))
        batches.append(order[start : start + max(1, fitting)])
        start += max(1, fitting)
    return batches


def cut_padded(order: Rows, longest: Lengths, tokens: int) -> list[Rows]:
    """Cut rows that are sorted by length into the longest runs with rows x longest <= `tokens`.

    >>> [rows.tolist() for rows in cut_padded(np.array([4, 2, 7]), np.array([1, 2, 3]), tokens=4)]
    [[4, 2], [7]]
    """
    return cut_into_batches(order, longest, longest, tokens, limit=tokens)


def _computed_positions(rows: Rows, src_lengths: Lengths, tgt_lengths: Lengths, padded: bool) -> int:
    """Source and target positions that the network computes for a batch."""
    src, tgt = src_lengths[rows], tgt_lengths[rows]
    return len(rows) * (int(src.max()) + int(tgt.max())) if padded else int(src.sum()) + int(tgt.sum())

"""Rows of one length window, cut into batches."""

from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from headwise.data.batch import Tokens
from headwise.data.sources import Pair

Lengths = NDArray[np.integer]


Rows = NDArray[np.int64]


Noise = Callable[[Tokens, int, int], Tokens]  # a source, an epoch, a row of the corpus -> the source that is read


BUCKETS = 16  # batches' worth of pairs that are sorted together; more pad less and make the pairs of a batch more alike


RANDOM_BATCH_LIMIT = (
    16  # rows x longest side of a random batch, as a multiple of its budget: what its ids and masks take
)


@runtime_checkable
class Pairs(Protocol):
    """What batches are made of: `PreparedCorpus`, which says what these are."""

    @property
    def src_lengths(self) -> Lengths: ...
    @property
    def tgt_lengths(self) -> Lengths: ...
    def src(self, row: int) -> Tokens: ...
    def tgt(self, row: int) -> Tokens: ...
    def text(self, row: int) -> Pair: ...
    def in_epoch(self, epoch: int) -> "Pairs": ...  # what is read in it: the same, or what is drawn of several corpora


def shuffle_into_batches(
    src_lengths: Lengths,
    tgt_lengths: Lengths,
    tokens_per_batch: int,
    generator: np.random.Generator,
    bucketed: bool = True,
    largest_first: bool = False,
) -> list[Rows]:
    """All rows in batches, as `plan_batches` has them, by the draws of `generator`."""
    longest = np.maximum(src_lengths, tgt_lengths)
    order = generator.permutation(len(longest))
    if bucketed:
        order = sort_by_length_in_windows(order, longest, BUCKETS * tokens_per_batch)
    room = tokens_per_batch if bucketed else RANDOM_BATCH_LIMIT * tokens_per_batch
    batches = cut_into_batches(order, tgt_lengths[order], longest[order], tokens_per_batch, room)
    plan = [batches[i] for i in generator.permutation(len(batches))]
    if largest_first:
        plan.insert(0, plan.pop(int(np.argmax([extent(rows, src_lengths, tgt_lengths, bucketed) for rows in plan]))))
    return plan


def sort_by_length_in_windows(order: Rows, longest: Lengths, window: int) -> Rows:
    """`order` with every stretch of some `window` pieces sorted by length, up and down in turns; ties stay as drawn.

    >>> sort_by_length_in_windows(np.arange(6), np.array([3, 1, 2, 1, 3, 2]), window=6).tolist()
    [1, 2, 0, 4, 5, 3]
    """
    longest = longest[order]
    windows = (np.cumsum(longest, dtype=np.int64) - 1) // window
    return order[np.lexsort((np.where(windows % 2, -longest.astype(np.int64), longest), windows))]


def cut_into_batches(order: Rows, pieces: Lengths, longest: Lengths, budget: int, room: int) -> list[Rows]:
    """Cut rows into the longest stretches whose pieces sum to `budget` at most, with rows x longest <= `room`."""
    ends = np.concatenate([[0], np.cumsum(pieces, dtype=np.int64)])
    batches, start = [], 0
    while start < len(order):
        stop = int(np.searchsorted(ends, ends[start] + budget, side="right")) - 1
        widths = np.maximum.accumulate(longest[start : max(stop, start + 1)]).astype(np.int64)
        fitting = int(np.searchsorted(widths * np.arange(1, len(widths) + 1), room, side="right"))
        batches.append(order[start : start + max(1, fitting)])
        start += max(1, fitting)
    return batches


def cut_padded(order: Rows, longest: Lengths, tokens: int) -> list[Rows]:
    """Cut rows, sorted by length, into the longest stretches with rows x longest <= `tokens`.

    >>> [rows.tolist() for rows in cut_padded(np.array([4, 2, 7]), np.array([1, 2, 3]), tokens=4)]
    [[4, 2], [7]]
    """
    return cut_into_batches(order, longest, longest, tokens, room=tokens)


def extent(rows: Rows, src_lengths: Lengths, tgt_lengths: Lengths, padded: bool) -> int:
    """Positions that are computed for a batch, of both sides."""
    src, tgt = src_lengths[rows], tgt_lengths[rows]
    return len(rows) * (int(src.max()) + int(tgt.max())) if padded else int(src.sum()) + int(tgt.sum())


PART = 1 << 20  # pairs planned at once, some fifty bytes each: beyond it memory does not grow with the corpus


def plan_epoch(
    src_lengths: Lengths,
    tgt_lengths: Lengths,
    tokens_per_batch: int,
    seed: int,
    epoch: int,
    bucketed: bool = True,
    part: int = PART,
) -> Iterator[list[Rows]]:
    """The batches of one epoch as `plan_batches` has them, planned for about `part` pairs at a time.

    Of a larger corpus every k-th pair is a part, so that however the files are sorted all parts are alike. Epoch 0
    begins with the largest batch, or with that of the part that has the longest pair.
    """
    n_parts = -(-len(src_lengths) // part)
    if n_parts <= 1:
        yield plan_batches(src_lengths, tgt_lengths, tokens_per_batch, seed, epoch, bucketed, largest_first=epoch == 0)
        return
    order = np.random.default_rng([seed, epoch]).permutation(n_parts).tolist()
    if epoch == 0:
        longest = [max(lengths[i::n_parts].max() for lengths in (src_lengths, tgt_lengths)) for i in range(n_parts)]
        order.sort(key=lambda i: i != int(np.argmax(longest)))  # the others stay in their order
    for i in order:
        generator = np.random.default_rng([seed, epoch, i])
        first = epoch == 0 and i == order[0]
        lengths = src_lengths[i::n_parts], tgt_lengths[i::n_parts]
        yield [
            rows * n_parts + i for rows in shuffle_into_batches(*lengths, tokens_per_batch, generator, bucketed, first)
        ]


def plan_batches(
    src_lengths: Lengths,
    tgt_lengths: Lengths,
    tokens_per_batch: int,
    seed: int,
    epoch: int,
    bucketed: bool = True,
    largest_first: bool = False,
) -> list[Rows]:
    """The batches of one epoch, as rows of the corpus: every pair once, in an order drawn from (seed, epoch).

    Args:
        src_lengths: pieces of every source, end marks included.
        tgt_lengths: the same for the targets.
        tokens_per_batch: what stays within this is rows x longest side of a batch with `bucketed`, and otherwise the
            target pieces of a batch; a pair that is longer on its own gets a batch of its own.
        bucketed: pairs of similar length together; otherwise they are drawn at random.
        largest_first: the batch that needs the most memory comes first, so that trouble shows at once.
    """
    generator = np.random.default_rng([seed, epoch])
    return shuffle_into_batches(src_lengths, tgt_lengths, tokens_per_batch, generator, bucketed, largest_first)

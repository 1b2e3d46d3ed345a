"""Deterministic top-k: the best entries of each row, with ties broken by index.

The order of equal scores in `torch.topk` may change with device, version and width of the row. Here the lower index
always wins.
"""

import torch
from jaxtyping import Float, Float32, Int, Int64
from torch import Tensor

from headwise.contract import BLOCK


def best(
    scores: Float32[Tensor, "rows n"], count: int
) -> tuple[Float32[Tensor, "rows count"], Int64[Tensor, "rows count"]]:
    """The `count` highest scores of each row and their indices; the lower index first among equals.

    >>> best(torch.tensor([[0.5, 0.9, 0.5, 0.9]]), 3)[1].tolist()
    [[1, 3, 0]]
    """
    assert 0 < count <= scores.size(1)
    values, _, index = best_continuations(scores.unsqueeze(1), scores.new_zeros(len(scores), 1), count)
    return values, index


def best_continuations(
    scores: Float32[Tensor, "batch live n"], so_far: Float32[Tensor, "batch live"], count: int
) -> tuple[Float32[Tensor, "batch count"], Int64[Tensor, "batch count"], Int64[Tensor, "batch count"]]:
    """The `count` highest sums of a hypothesis's score `so_far` and an entry: (sums, hypotheses, entries).

    Among equal sums, the lower hypothesis and then the lower entry is first. `count` is at most live * n. Two exact
    stages read the whole vocabulary only once: the best sums lie in the `count` blocks with the best maxima.
    """
    n = scores.size(2)
    maxima = block_maxima(scores)
    blocks = maxima.size(2)
    keys = order_keys((maxima + so_far.unsqueeze(2)).flatten(1))
    chosen = keys.topk(min(count, keys.size(1)), sorted=False).indices.sort(1).values
    parents, first = chosen // blocks, chosen % blocks * BLOCK
    entries = first.unsqueeze(2) + torch.arange(BLOCK, device=scores.device)
    finalists = take_entries(scores.flatten(1), entries + (parents * n).unsqueeze(2))
    finalists += so_far.gather(1, parents).unsqueeze(2)
    if n % BLOCK:
        finalists.masked_fill_(entries >= n, -torch.inf)
    finalists = finalists.flatten(1)
    index = order_keys(finalists).topk(count).indices
    block = index // BLOCK
    # NaN can rank below the -inf beyond the last entry; the clamp keeps indices valid.
    entry = (first.gather(1, block) + index % BLOCK).clamp_(max=n - 1)
    return finalists.gather(1, index), parents.gather(1, block), entry


def highest(scores: Float32[Tensor, "rows n"]) -> Int64[Tensor, " rows"]:
    """The index of the highest score of each row, the lowest such index: `best` for one, in fewer passes.

    >>> highest(torch.tensor([[0.5, 0.9, 0.5, 0.9]])).tolist()
    [1]
    """
    first = block_maxima(scores).argmax(1, keepdim=True) * BLOCK
    block = take_entries(scores, (first + torch.arange(BLOCK, device=scores.device)).unsqueeze(1)).squeeze(1)
    return (first.squeeze(1) + block.argmax(1)).clamp_(max=scores.size(1) - 1)  # argmax returns the first maximum


def block_maxima(scores: Float[Tensor, "*rows n"]) -> Float[Tensor, "*rows blocks"]:
    """The highest score of each block of neighbours; the last block may be smaller."""
    whole = scores.size(-1) // BLOCK * BLOCK
    maxima = scores[..., :whole].unflatten(-1, (-1, BLOCK)).amax(-1)
    if whole == scores.size(-1):
        return maxima
    return torch.cat([maxima, scores[..., whole:].amax(-1, keepdim=True)], -1)


def take_entries(
    scores: Float[Tensor, "rows n"], index: Int64[Tensor, "rows blocks entries"]
) -> Float[Tensor, "rows blocks entries"]:
    """The scores at the given indices of each row; indices that are too high select the last score."""
    return scores.gather(1, index.flatten(1).clamp_(max=scores.size(1) - 1)).view_as(index)


def order_keys(scores: Float32[Tensor, "rows n"]) -> Int64[Tensor, "rows n"]:
    """Integers that sort like the scores; among equal scores the earlier one is higher.

    The bits of a float sort like a signed integer once the bits below the sign are flipped for negative numbers
    (IEEE 754). The position goes into the lower half.
    """
    bits = (scores + 0.0).view(torch.int32)  # + 0.0 turns -0.0 into 0.0
    bits ^= (bits >> 31).bitwise_and_(0x7FFFFFFF)
    n = scores.size(1)
    return bits.long().bitwise_left_shift_(32).add_(torch.arange(n - 1, -1, -1, device=scores.device))


def sort_descending(
    scores: Float[Tensor, "batch n"], count: int
) -> tuple[Float[Tensor, "batch count"], Int[Tensor, "batch count"]]:
    """`best` for short rows: one stable sort."""
    values, index = scores.sort(dim=1, descending=True, stable=True)
    return values[:, :count], index[:, :count]

"""Incremental decoding matches a full forward pass, and cache operations move whole rows."""

import pytest
import torch
from torch import Tensor

from headwise.core.cache import DecoderCache
from headwise.core.transformer import Transformer

SRC = torch.tensor([[7, 5, 10, 3, 8, 2], [4, 9, 2, 0, 0, 0], [6, 6, 4, 2, 0, 0]])
SRC_MASK = SRC != 0
TIGHT = {"rtol": 0, "atol": 1e-12}


def targets(rows: int, length: int) -> Tensor:
    """Random tokens."""
    return torch.randint(3, 11, (rows, length))


def start(model: Transformer) -> DecoderCache:
    return model.start_cache(model.encode(SRC, SRC_MASK), SRC_MASK)


def advance(model: Transformer, cache: DecoderCache, tokens: Tensor) -> Tensor:
    return model.decode(tokens, cache.memory, cache.src_mask, cache)


@pytest.mark.parametrize(
    "chunks", [[1] * 20, [20], [1, 19], [5, 1, 1, 13], [16, 1, 3], [15, 2, 1, 2]], ids=lambda c: "+".join(map(str, c))
)
def test_incremental_decoding_is_the_full_forward(model: Transformer, chunks: list[int]) -> None:
    """Twenty positions, so that the buffers grow at least once."""
    tgt_in = targets(3, 20)
    cache = start(model)
    hidden = torch.cat([advance(model, cache, chunk) for chunk in tgt_in.split(chunks, dim=1)], dim=1)
    torch.testing.assert_close(hidden, model.states(SRC, tgt_in, SRC_MASK), **TIGHT)
    assert cache.length == 20


@pytest.mark.parametrize("prefix_length", [0, 1, 5, 17])
@pytest.mark.parametrize("index", [[2, 0], [1, 1, 0, 2, 2], [2], [0, 1, 2]], ids=str)
def test_select_equals_decoding_only_those_rows(model: Transformer, index: list[int], prefix_length: int) -> None:
    prefix, chosen = targets(3, prefix_length), torch.tensor(index)
    new = targets(len(index), 3)
    cache = start(model)
    if prefix_length:
        advance(model, cache, prefix)
    cache.select(chosen)
    expected = model.states(SRC[chosen], torch.cat([prefix[chosen], new], dim=1), SRC_MASK[chosen])[:, prefix_length:]
    torch.testing.assert_close(advance(model, cache, new), expected, **TIGHT)


@pytest.mark.parametrize("index", [[1, 0, 2, 3, 5, 4], [0, 0, 3, 3, 5, 5], [1, 1, 2, 3, 4, 4]], ids=str)
@pytest.mark.parametrize("prefix_length", [1, 5])
def test_reorder_swaps_prefixes_within_a_sentence(model: Transformer, index: list[int], prefix_length: int) -> None:
    beams, order = torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor(index)
    prefix, new = targets(6, prefix_length), targets(6, 2)
    cache = start(model)
    cache.select(beams)
    advance(model, cache, prefix)
    cache.reorder(order)
    expected = model.states(SRC[beams], torch.cat([prefix[order], new], dim=1), SRC_MASK[beams])[:, prefix_length:]
    torch.testing.assert_close(advance(model, cache, new), expected, **TIGHT)


def test_reorder_does_not_copy_the_source_side(model: Transformer) -> None:
    """Copying the source at every step would be most of the work. Buffers of the target side remain where they are."""
    cache = start(model)
    advance(model, cache, targets(3, 1))
    before = cache.buffers
    cache.reorder(torch.tensor([0, 1, 2]))
    assert len(cache.buffers) == 2 + 4 * len(cache.self_attn)
    assert all(now is buffer for now, buffer in zip(cache.buffers, before, strict=True))


def test_a_finished_row_may_leave_in_the_middle(model: Transformer) -> None:
    """The order of search: expand, step, reorder, drop a sentence, step."""
    tokens = [targets(6, 1), targets(6, 1), targets(4, 1)]
    expand, order, keep = torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([1, 0, 2, 2, 5, 4]), torch.tensor([0, 1, 4, 5])
    cache = start(model)
    cache.select(expand)
    advance(model, cache, tokens[0])
    cache.reorder(order)
    advance(model, cache, tokens[1])
    cache.select(keep)
    history = torch.cat([tokens[0][order][keep], tokens[1][keep], tokens[2]], dim=1)
    rows = expand[keep]
    expected = model.states(SRC[rows], history, SRC_MASK[rows])[:, -1:]
    torch.testing.assert_close(advance(model, cache, tokens[2]), expected, **TIGHT)

"""Requirements of search and training, for every variant: causality, independence of rows, exact caches."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from headwise.core.loss import sequence_loss
from headwise.pytorch.architectures.registry import Network

SOURCES = [[4, 9, 2], [7, 5, 10, 3, 8, 2], [6, 2]]
TARGETS = [[1, 8, 8, 4, 5], [1, 3], [1, 6, 10]]
SRC = pad_sequence([torch.tensor(row) for row in SOURCES], batch_first=True)
SRC_MASK = SRC != 0
TIGHT = {"rtol": 0, "atol": 1e-12}


def hidden_states(model: Network, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Tensor:
    src, tgt = (pad_sequence([torch.tensor(row) for row in rows], batch_first=True) for rows in (sources, targets))
    return model.states(src, tgt, src != 0)


def targets(rows: int, length: int) -> Tensor:
    return torch.randint(3, 11, (rows, length))


def advance(model: Network, cache, tokens: Tensor) -> Tensor:
    return model.decode(tokens, cache.memory, cache.src_mask, cache)


# --- rows and positions


def test_hidden_states_of_a_batch_have_its_shape(model: Network) -> None:
    hidden = hidden_states(model, SOURCES, TARGETS)
    assert hidden.shape == (3, 5, 6)
    assert model.logits(hidden).shape == (3, 5, 11)


@pytest.mark.parametrize("changed", [1, 4])
def test_no_position_sees_later_ones(model: Network, changed: int) -> None:
    other = [*TARGETS[0]]
    other[changed] = 9
    before, after = hidden_states(model, SOURCES[:1], TARGETS[:1]), hidden_states(model, SOURCES[:1], [other])
    torch.testing.assert_close(before[:, :changed], after[:, :changed], **TIGHT)
    assert (before - after)[:, changed].abs().max() > 1e-6


@pytest.mark.parametrize("row", range(3))
def test_a_sentence_is_the_same_alone_and_in_a_padded_batch(model: Network, row: int) -> None:
    together = hidden_states(model, SOURCES, TARGETS)[row, : len(TARGETS[row])]
    torch.testing.assert_close(together, hidden_states(model, [SOURCES[row]], [TARGETS[row]])[0], **TIGHT)


def test_padding_is_never_read(model: Network) -> None:
    tgt = targets(3, 5)
    torch.testing.assert_close(
        model.states(SRC.masked_fill(~SRC_MASK, 9), tgt, SRC_MASK), model.states(SRC, tgt, SRC_MASK), **TIGHT
    )


def test_a_permuted_batch_gives_permuted_states(model: Network) -> None:
    order = [2, 0, 1]
    permuted = hidden_states(model, [SOURCES[i] for i in order], [TARGETS[i] for i in order])
    torch.testing.assert_close(permuted, hidden_states(model, SOURCES, TARGETS)[order], **TIGHT)


@pytest.mark.parametrize("place", [0, 3, 5])
def test_every_source_token_and_its_position_matter(model: Network, place: int) -> None:
    """Real tokens are not masked."""
    source = SOURCES[1]
    changed = [*source[:place], 4, *source[place + 1 :]]
    moved = [source[place], *source[:place], *source[place + 1 :]]
    reference = hidden_states(model, [source], TARGETS[:1])
    for other in [changed, moved] if place else [changed]:
        assert (hidden_states(model, [other], TARGETS[:1]) - reference).abs().max() > 1e-9


def test_every_parameter_has_a_gradient(model: Network) -> None:
    hidden = hidden_states(model.train(), SOURCES, TARGETS).flatten(0, 1)[None]
    sequence_loss(hidden, model.output.weight, torch.randint(0, 11, (15,)), 0.1).objective.backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


# --- the cache


@pytest.mark.parametrize("chunks", [[1] * 12, [1, 11], [5, 1, 1, 5]], ids=lambda c: "+".join(map(str, c)))
def test_incremental_decoding_is_the_full_forward(model: Network, chunks: list[int]) -> None:
    tgt_in = targets(3, 12)
    cache = model.start_cache(model.encode(SRC, SRC_MASK), SRC_MASK)
    hidden = torch.cat([advance(model, cache, chunk) for chunk in tgt_in.split(chunks, dim=1)], dim=1)
    torch.testing.assert_close(hidden, model.states(SRC, tgt_in, SRC_MASK), **TIGHT)
    assert cache.length == 12


@pytest.mark.parametrize("prefix_length", [0, 4])
@pytest.mark.parametrize("index", [[2, 0], [1, 1, 0, 2, 2]], ids=str)
def test_select_equals_decoding_only_those_rows(model: Network, index: list[int], prefix_length: int) -> None:
    prefix, chosen = targets(3, prefix_length), torch.tensor(index)
    new = targets(len(index), 3)
    cache = model.start_cache(model.encode(SRC, SRC_MASK), SRC_MASK)
    if prefix_length:
        advance(model, cache, prefix)
    cache.select(chosen)
    expected = model.states(SRC[chosen], torch.cat([prefix[chosen], new], dim=1), SRC_MASK[chosen])[:, prefix_length:]
    torch.testing.assert_close(advance(model, cache, new), expected, **TIGHT)


def test_rows_move_as_in_search(model: Network) -> None:
    """Expand, step, reorder, drop a sentence, step."""
    tokens = [targets(6, 1), targets(6, 1), targets(4, 1)]
    expand, order, keep = torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([1, 0, 2, 2, 5, 4]), torch.tensor([0, 1, 4, 5])
    cache = model.start_cache(model.encode(SRC, SRC_MASK), SRC_MASK)
    cache.select(expand)
    advance(model, cache, tokens[0])
    cache.reorder(order)
    advance(model, cache, tokens[1])
    cache.select(keep)
    history = torch.cat([tokens[0][order][keep], tokens[1][keep], tokens[2]], dim=1)
    rows = expand[keep]
    expected = model.states(SRC[rows], history, SRC_MASK[rows])[:, -1:]
    torch.testing.assert_close(advance(model, cache, tokens[2]), expected, **TIGHT)


def test_reorder_does_not_copy_the_source_side(model: Network) -> None:
    cache = model.start_cache(model.encode(SRC, SRC_MASK), SRC_MASK)
    advance(model, cache, targets(3, 1))
    memory, mask = cache.memory, cache.src_mask
    cache.reorder(torch.tensor([0, 1, 2]))
    assert cache.memory is memory
    assert cache.src_mask is mask


def test_dropout_is_in_training_only(build_small: Callable[..., Network]) -> None:
    for variant in ("luong", "bahdanau", "conv"):
        model = build_small(variant, dropout=0.3)
        assert torch.equal(hidden_states(model, SOURCES, TARGETS), hidden_states(model, SOURCES, TARGETS))
        model.train()
        assert not torch.equal(hidden_states(model, SOURCES, TARGETS), hidden_states(model, SOURCES, TARGETS))

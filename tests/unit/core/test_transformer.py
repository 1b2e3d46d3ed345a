"""The whole Transformer: positions do not see later ones, and sentences do not see other sentences or padding."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from headwise.core.transformer import Transformer

SOURCES = [[4, 9, 2], [7, 5, 10, 3, 8, 2], [6, 2]]
TARGETS = [[1, 8, 8, 4, 5], [1, 3], [1, 6, 10]]
TIGHT = {"rtol": 0, "atol": 1e-12}


def padded(rows: Sequence[Sequence[int]]) -> Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=0)


def hidden_states(model: Transformer, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Tensor:
    src = padded(sources)
    return model.states(src, padded(targets), src != 0)


def test_hidden_states_of_a_batch_have_its_shape(model: Transformer) -> None:
    hidden = hidden_states(model, SOURCES, TARGETS)
    assert hidden.shape == (3, 5, 8)
    assert model.logits(hidden).shape == (3, 5, 11)


@pytest.mark.parametrize("changed", [1, 2, 4])
def test_no_position_sees_later_ones(model: Transformer, changed: int) -> None:
    """Section 3.2.3: the prediction for position i depends on the outputs before i only."""
    other = [*TARGETS[0]]
    other[changed] = 9
    before, after = hidden_states(model, SOURCES[:1], TARGETS[:1]), hidden_states(model, SOURCES[:1], [other])
    torch.testing.assert_close(before[:, :changed], after[:, :changed], **TIGHT)
    assert ((before - after)[:, changed:].abs().amax(-1) > 1e-6).all()


@pytest.mark.parametrize("row", range(3))
def test_a_sentence_is_the_same_alone_and_in_a_padded_batch(model: Transformer, row: int) -> None:
    together = hidden_states(model, SOURCES, TARGETS)[row, : len(TARGETS[row])]
    alone = hidden_states(model, [SOURCES[row]], [TARGETS[row]])[0]
    torch.testing.assert_close(together, alone, **TIGHT)


def test_padding_is_never_read(model: Transformer) -> None:
    src, tgt = padded(SOURCES), padded(TARGETS)
    src_mask, tgt_mask = src != 0, tgt != 0
    clean = model.states(src, tgt, src_mask)
    dirty = model.states(src.masked_fill(~src_mask, 9), tgt.masked_fill(~tgt_mask, 9), src_mask)
    torch.testing.assert_close(clean[tgt_mask], dirty[tgt_mask], **TIGHT)


def test_a_permuted_batch_gives_permuted_states(model: Transformer) -> None:
    order = [2, 0, 1]
    permuted = hidden_states(model, [SOURCES[i] for i in order], [TARGETS[i] for i in order])
    torch.testing.assert_close(permuted, hidden_states(model, SOURCES, TARGETS)[order], **TIGHT)


@pytest.mark.parametrize("place", range(6))
def test_every_source_token_and_its_position_matter(model: Transformer, place: int) -> None:
    """Real tokens are not masked."""
    source = SOURCES[1]
    changed = [*source[:place], 4, *source[place + 1 :]]
    moved = [source[place], *source[:place], *source[place + 1 :]]
    reference = hidden_states(model, [source], TARGETS[:1])
    for other in [changed, moved] if place else [changed]:
        assert (hidden_states(model, [other], TARGETS[:1]) - reference).abs().max() > 1e-6


def test_forward_is_encode_then_decode(model: Transformer) -> None:
    src = padded(SOURCES)
    src_mask = src != 0
    in_two_steps = model.decode(padded(TARGETS), model.encode(src, src_mask), src_mask)
    assert torch.equal(model.states(src, padded(TARGETS), src_mask), in_two_steps)

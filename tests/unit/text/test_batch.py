"""Ids to tensors."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from headwise.core.batches import collate

ROWS = st.lists(st.integers(4, 99), max_size=6)


@given(st.lists(st.tuples(ROWS, ROWS), min_size=1, max_size=5))
def test_every_token_is_at_its_position(pairs):
    batch = collate(pairs, pad_id=0, bos_id=1, eos_id=2)
    for row, (src, tgt) in enumerate(pairs):
        assert batch.src[row][: len(src) + 1].tolist() == [*src, 2]
        assert batch.src_mask[row].tolist() == [True] * (len(src) + 1) + [False] * (batch.src.shape[1] - len(src) - 1)
        assert batch.tgt_in[row][: len(tgt) + 1].tolist() == [1, *tgt]
        assert batch.tgt_out[row][: len(tgt) + 1].tolist() == [*tgt, 2]
        assert not batch.src[row][len(src) + 1 :].any()
        assert not batch.tgt_in[row][len(tgt) + 1 :].any()
        assert not batch.tgt_out[row][len(tgt) + 1 :].any()
    assert batch.n_source_tokens == sum(len(src) + 1 for src, _ in pairs)
    assert batch.n_target_tokens == sum(len(tgt) + 1 for _, tgt in pairs)
    assert batch.src.shape[1] == max(len(src) for src, _ in pairs) + 1


def test_types_index_and_padding():
    pairs = [
        (np.array([5], np.int32), np.array([6, 7], np.int32)),
        (np.array([], np.int32), np.array([8], np.int32)),
    ]
    batch = collate(pairs, pad_id=9, bos_id=1, eos_id=2, index=[40, 7])
    assert batch.src.tolist() == [[5, 2], [2, 9]]
    assert batch.tgt_in.tolist() == [[1, 6, 7], [1, 8, 9]]
    assert batch.index.tolist() == [40, 7]
    assert (batch.n_real, batch.n_cells) == (8, 10)
    assert batch.src.dtype == batch.tgt_in.dtype == batch.tgt_out.dtype == batch.index.dtype == torch.int64
    assert torch.equal(batch.to("cpu").tgt_out, batch.tgt_out)

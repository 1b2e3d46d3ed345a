"""Blocks of running text: every token once per epoch, another offset each time, exact resumption."""

from itertools import islice

import numpy as np
import pytest
import torch

from headwise.pytorch.data.blocks import BlockBatch, block_stream, load_blocks, plan_blocks, validation_blocks

TOKENS = np.arange(100, dtype=np.int32)


def batches(state: dict[str, int] | None, count: int) -> tuple[list[list[list[int]]], dict[str, int]]:
    stream = block_stream(TOKENS, 7, 30, seed=3, state=state)
    try:
        return [batch.tokens.tolist() for batch in islice(stream, count)], stream.state()
    finally:
        stream.close()


def test_a_block_and_its_next_token() -> None:
    batch = load_blocks(TOKENS, np.array([4, 0]), 3)
    assert batch.tgt_in.tolist() == [[4, 5, 6], [0, 1, 2]]
    assert batch.tgt_out.tolist() == [[5, 6, 7], [1, 2, 3]]
    assert (batch.n_targets, batch.n_tokens, batch.n_real, batch.n_cells) == (6, 6, 6, 6)
    assert batch.extent == "2 blocks of 3 tokens"
    assert batch.tokens.dtype == torch.int64


@pytest.mark.parametrize("epoch", range(6))
def test_an_epoch_reads_every_token_once_except_at_the_ends(epoch: int) -> None:
    plan = plan_blocks(100, 7, tokens_per_batch=30, seed=1, epoch=epoch)
    assert [len(rows) for rows in plan[:-1]] == [4] * (len(plan) - 1)  # 30 tokens are 4 blocks of 7
    starts = sorted(int(start) for rows in plan for start in rows)
    assert 0 <= starts[0] < 7 and starts[-1] + 7 < 100 <= starts[-1] + 2 * 7
    assert np.diff(starts).tolist() == [7] * (len(starts) - 1)


def test_epochs_differ_and_a_seed_repeats_them() -> None:
    def plan(seed: int, epoch: int) -> list[list[int]]:
        return [rows.tolist() for rows in plan_blocks(1000, 7, 30, seed, epoch)]

    assert plan(1, 0) == plan(1, 0)
    assert plan(1, 0) != plan(1, 1) and plan(1, 0) != plan(2, 0)
    begins = {min(min(rows) for rows in plan(1, epoch)) for epoch in range(40)}
    assert begins == set(range(7))  # a token stands now here, now there in its block


@pytest.mark.parametrize("n_tokens", [8, 9, 14, 15])
def test_a_text_barely_longer_than_a_block(n_tokens: int) -> None:
    for epoch in range(20):
        starts = np.concatenate(plan_blocks(n_tokens, 7, 1, seed=1, epoch=epoch))
        assert len(starts) >= 1 and starts.max() + 7 < n_tokens


def test_a_resumed_stream_is_exact() -> None:
    whole, _ = batches(None, 20)
    for at in (1, 3, 4, 5, 11):  # an epoch has 4 batches
        first, state = batches(None, at)
        assert first + batches(state, 20 - at)[0] == whole


@pytest.mark.parametrize("n_tokens", [2, 7, 8, 9, 15, 100])
def test_validation_predicts_every_token_once_except_the_first(n_tokens: int) -> None:
    found: list[BlockBatch] = list(validation_blocks(TOKENS[:n_tokens], 7, 30))
    predicted = [token for batch in found for token in batch.tgt_out.flatten().tolist()]
    assert predicted == list(range(1, n_tokens))
    assert all(batch.tgt_in.size(1) <= 7 for batch in found)

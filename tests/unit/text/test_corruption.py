"""Corruption of T5 and BART: by hand, shares, and after resuming."""

from contextlib import closing
from itertools import islice

import numpy as np
import pytest
import torch

from headwise.core.batches import Batch
from headwise.pytorch.data.corruption import (
    BlockSpecials,
    CorruptedBlocks,
    SpanCorruption,
    block_length_for,
    denoising_for,
    noise_counts,
    noise_mask,
    replace_spans,
    split_randomly,
)

SENTINELS = np.arange(99, 69, -1)  # counted backwards, as T5's are
T5 = BlockSpecials([], [1], [], start_id=0, end_id=1, pad_id=0)
BART = BlockSpecials([0], [2], [0], start_id=2, end_id=2, pad_id=1)
TEXT = np.random.default_rng(0).integers(5, 60, 3000).astype(np.int32)
# A dog runs . It sees a cat . Who ? -- 犬。 猫 -- in pieces, the mask and an end mark before them
PIECES = [
    "<mask>",
    "<pad>",
    "</s>",
    "▁A",
    "▁dog",
    "▁runs",
    ".",
    "▁It",
    "▁sees",
    "s",
    "?",
    "犬",
    "。",
    "猫",
    "3",
    "<0x0A>",
]


class Ordered(np.random.Generator):
    """A generator that returns given permutations."""

    def __init__(self, *orders: list[int]) -> None:
        super().__init__(np.random.PCG64())
        self.orders = list(orders)

    def permutation(self, n: int) -> np.ndarray:  # pyright: ignore
        order = self.orders.pop(0)
        assert sorted(order) == list(range(n))
        return np.array(order)

    def poisson(self, mean: float, n: int) -> np.ndarray:  # pyright: ignore
        assert mean == 3.0
        return np.array([2, 0, 1, 1, 1, 1, 1, 1])


def test_the_example_of_t5s_paper() -> None:
    """Figure 2: Thank you [for inviting] me to your party [last] week . -- the last sentinel ends the targets."""
    tokens, taken = np.arange(1, 12), np.zeros(11, bool)
    taken[[2, 3, 8]] = True
    assert replace_spans(tokens, taken, SENTINELS).tolist() == [1, 2, 99, 5, 6, 7, 8, 98, 10, 11]
    assert replace_spans(tokens, ~taken, SENTINELS).tolist() == [99, 3, 4, 98, 9, 97]


def test_spans_by_hand() -> None:
    """3 of 20 tokens are corrupted, in one span after the 17 kept ones; 8 of 50 tokens, in 3 spans."""
    read, written = SpanCorruption(SENTINELS)(np.arange(20), Ordered(list(range(16)), [1, 0]))
    assert read.tolist() == [*range(17), 99] and written.tolist() == [99, 17, 18, 19]
    kept = [4, 9, *(i for i in range(41) if i not in (4, 9))]  # 42 in parts of 5, 5 and 32
    taken = [6, 0, 1, 2, 3, 4, 5]  # 8 in parts of 1, 6 and 1
    read, written = SpanCorruption(SENTINELS)(np.arange(50), Ordered(kept, taken))
    assert read.tolist() == [0, 1, 2, 3, 4, 99, 6, 7, 8, 9, 10, 98, *range(17, 49), 97]
    assert written.tolist() == [99, 5, 98, 11, 12, 13, 14, 15, 16, 97, 49]


@pytest.mark.parametrize(("length", "tokens", "targets"), [(512, 568, 114), (128, 141, 29), (32, 34, 8)])
def test_block_lengths_match_t5(length: int, tokens: int, targets: int) -> None:
    """568 and 114 are the values of the authors' code for 512; the others are computed by hand from its formula."""
    assert block_length_for(length) == tokens
    taken, spans = noise_counts(tokens)
    assert (tokens - taken + spans + 1, taken + spans + 1) == (length, targets)


def test_every_division_is_equally_likely() -> None:
    generator = np.random.default_rng(1)
    found = [tuple(split_randomly(5, 3, generator).tolist()) for _ in range(6000)]
    counts = {parts: found.count(parts) for parts in set(found)}
    assert len(counts) == 6 and all(sum(parts) == 5 and min(parts) > 0 for parts in counts)
    assert all(abs(count - 1000) < 150 for count in counts.values())


@pytest.mark.parametrize("length", [1, 2, 3, 7, 568])
def test_a_block_starts_with_a_kept_span(length: int) -> None:
    mask = noise_mask(length, np.random.default_rng(0))
    assert len(mask) == length and not mask[0] and (length == 1 or mask[-1])
    assert mask.sum() == (noise_counts(length)[0] if length > 1 else 0)


def test_sentences_by_hand() -> None:
    noise = denoising_for(PIECES, mask_id=0, end_id=2)
    dog, it, who = [3, 4, 5, 6], [7, 8, 9, 6, 14, 6, 9, 10], [4, 6]  # a full stop between 3 and s ends nothing
    assert [part.tolist() for part in noise.sentences(np.array(dog + it + who))] == [dog, it, who]
    assert [part.tolist() for part in noise.sentences(np.array([11, 12, 13, 2, 14, 15, 14]))] == [
        [11, 12], [13, 2], [14, 15], [14]
    ]  # fmt: skip


def test_barts_noise_by_hand() -> None:
    """Sentences 1, 2, 0; 3 of 8 words are masked in spans of 2, 0 and 1, after 0, 2 and 5 of the other words."""
    noise = denoising_for(PIECES, mask_id=0, end_id=2)
    tokens = np.array([3, 4, 5, 6, 7, 8, 9, 6, 3, 4, 8, 6])
    read, written = noise(tokens, Ordered([1, 2, 0], [2, 5, 0, 1, 3, 4]))
    # It seess. A dog sees. A dog runs.
    assert read.tolist() == [0, 3, 4, 0, 8, 6, 3, 4, 0]
    assert written.tolist() == tokens.tolist()


def spans(text: np.ndarray = TEXT) -> CorruptedBlocks:
    return CorruptedBlocks(text, block_length_for(64), SpanCorruption(SENTINELS), T5)


def denoised() -> CorruptedBlocks:
    noise = denoising_for(["<mask>", *(f"▁{i}{'.' * (i % 10 == 0)}" for i in range(1, 60))], mask_id=0, end_id=2)
    return CorruptedBlocks(TEXT, 62, noise, BART)


def test_batches_have_special_tokens_and_no_padding() -> None:
    batch = next(spans().fixed(256))
    assert batch.src.shape == (3, 64) and batch.tgt_out.shape == (3, 14) and batch.src_mask.all()
    assert (batch.src[:, -1] == 1).all() and (batch.tgt_out[:, -1] == 1).all() and (batch.tgt_in[:, 0] == 0).all()
    torch.testing.assert_close(batch.tgt_in[:, 1:], batch.tgt_out[:, :-1])
    batch = next(denoised().fixed(256))
    written = batch.tgt_out[0].tolist()
    assert written == [0, *TEXT[:62].tolist(), 2] and batch.tgt_in[0].tolist() == [2, *written[:-1]]
    assert (batch.src[:, 0] == 0).all() and all(2 in row for row in batch.src.tolist())


def test_source_and_target_together_are_the_text() -> None:
    """Replace each sentinel of the source by its tokens in the target."""
    for batch in spans().fixed(512):
        for src, tgt, start in zip(batch.src.tolist(), batch.tgt_out.tolist(), batch.index.tolist(), strict=True):
            parts: dict[int, list[int]] = {}
            for token in tgt[: tgt.index(1)]:
                last = parts.setdefault(token, []) if token >= 70 else parts[next(reversed(parts))]
                last += [token] * (token < 70)
            whole = [token for one in src[: src.index(1)] for token in (parts[one] if one >= 70 else [one])]
            assert whole == TEXT[start : start + len(whole)].tolist()


@pytest.mark.parametrize("make", [spans, denoised])
def test_a_resumed_stream_is_exact(make: type[CorruptedBlocks]) -> None:
    def batches(n: int, state: dict[str, int] | None = None) -> tuple[list[Batch], dict[str, int]]:
        with closing(make().stream(200, 7, state)) as stream:
            return list(islice(stream, n)), stream.state()

    whole, _ = batches(40)
    assert len({batch.src.shape[0] for batch in whole}) <= 2
    first, state = batches(17)
    rest, _ = batches(23, state)
    assert all(
        torch.equal(a.src, b.src) and torch.equal(a.tgt_out, b.tgt_out)
        for a, b in zip(whole, first + rest, strict=True)
    )
    again = {batch.src[0].numpy().tobytes() for batch in whole}
    assert len(again) == 40  # nothing is read twice alike


def test_validation_is_the_same_every_time() -> None:
    passes = [list(denoised().fixed(200)) for _ in range(2)]
    assert all(torch.equal(a.src, b.src) for a, b in zip(*passes, strict=True))
    assert sum(batch.n_target_tokens for batch in passes[0]) == 3000 + 2 * 49

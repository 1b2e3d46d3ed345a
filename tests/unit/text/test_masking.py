"""Masking of a block: by hand, shares, and after resuming."""

from contextlib import closing
from itertools import islice

import numpy as np
import pytest
import torch

from headwise.pytorch.data.masked_sequences import MaskedText
from headwise.text.prepared.masking import Masking, WordEdges, number_words, word_edges

PIECES = np.arange(5, 30, dtype=np.int64)  # below them marks; 4 is the mask
MASKING = Masking(4, PIECES)
TEXT = (np.random.default_rng(0).integers(5, 30, 3000)).astype(np.int32)


class Drawn(np.random.Generator):
    """A generator that returns given samples."""

    def __init__(self, order: list[int], draws: list[float], pieces: list[int]) -> None:
        super().__init__(np.random.PCG64())
        self.order, self.draws, self.pieces = order, draws, pieces

    def permutation(self, n: int) -> np.ndarray:  # pyright: ignore
        assert n == len(self.order)
        return np.array(self.order)

    def random(self, n: int) -> np.ndarray:  # pyright: ignore
        assert n == len(self.draws)
        return np.array(self.draws)

    def choice(self, pieces: np.ndarray, n: int) -> np.ndarray:  # pyright: ignore
        assert set(self.pieces) <= set(pieces.tolist()) and n == len(self.pieces)
        return np.array(self.pieces)


def test_by_hand() -> None:
    """[CLS] a b c d e f [SEP] g h [SEP]: half of 8 tokens are chosen, the first in the sampled order."""
    tokens = np.array([1, 10, 11, 12, 13, 14, 15, 2, 16, 17, 2])
    generator = Drawn([7, 0, 3, 2, 1, 4, 5, 6], [0.1, 0.85, 0.79, 0.95], [20, 21, 22, 23])
    read, places = Masking(4, PIECES, share=0.5)(tokens, generator)
    assert places.tolist() == [1, 3, 4, 9]  # a, c, d and h: pieces 0, 2, 3 and 7
    assert read.tolist() == [1, 4, 11, 21, 4, 14, 15, 2, 16, 17, 2]  # a mask, another piece, a mask, and as it was


def test_whole_words_by_hand() -> None:
    """Words ab, c and def: half of 6 tokens are chosen. The first sampled word is ab, and def does not fit any more."""
    joints = WordEdges(np.array([0, 1] * 10, bool), np.ones(20, bool))  # odd pieces go on with a word
    tokens = np.array([1, 6, 7, 8, 10, 11, 13, 2])
    generator = Drawn([0, 2, 1], [0.0, 0.0], [5, 5])
    read, places = Masking(4, np.arange(5, 20, dtype=np.int64), 0.5, joints)(tokens, generator)
    assert places.tolist() == [1, 2] and read.tolist() == [1, 4, 4, 8, 10, 11, 13, 2]


def test_words_end_at_special_tokens_blanks_and_punctuation() -> None:
    joints = word_edges(["▁dog", "s", ".", "<0xC3>", "<0x0A>"])
    known = np.array([1, 1, 1, 1, 0, 1, 1], bool)
    assert number_words(np.array([1, 1, 2, 1, 9, 1, 3]) % 5, known, joints).tolist() == [0, 0, 1, 2, -1, 3, 3]


def test_a_first_word_longer_than_the_share_is_masked() -> None:
    generator = Drawn([0], [0.0] * 4, [5] * 4)
    joints = WordEdges(np.ones(30, bool), np.ones(30, bool))
    _, places = Masking(4, PIECES, 0.15, joints)(np.array([7, 8, 9, 10]), generator)
    assert places.tolist() == [0, 1, 2, 3]


def test_shares() -> None:
    """15 % of the tokens; 80 % of these become the mask, 10 % stay, 10 % become any token but special ones."""
    text = MaskedText(np.tile(TEXT, 20), 128, [1], [2], MASKING)
    batches = list(text.fixed(10_000))
    src, targets = (
        torch.cat([batch.src.flatten()[batch.positions] for batch in batches]),
        torch.cat([batch.targets for batch in batches]),
    )
    assert len(targets) == pytest.approx(0.15 * 60_000, rel=0.01)
    assert (src == 4).float().mean().item() == pytest.approx(0.8, abs=0.02)
    assert (src == targets).float().mean().item() == pytest.approx(0.1 + 0.1 / 25, abs=0.015)
    assert set(src[src != 4].tolist()) == set(PIECES.tolist()) == set(targets.tolist())


def test_other_tokens_are_unchanged() -> None:
    text = MaskedText(TEXT[:100], 32, [1], [2], MASKING)
    batches = list(text.fixed(60))
    assert [tuple(batch.src.shape) for batch in batches] == [(2, 32), (1, 32), (1, 12)]
    whole = []
    for batch in batches:
        src = batch.src.flatten()
        src[batch.positions] = batch.targets
        blocks = src.view(batch.src.shape)
        assert (blocks[:, 0] == 1).all() and (blocks[:, -1] == 2).all()
        whole += blocks[:, 1:-1].flatten().tolist()
    assert whole == TEXT[:100].tolist()


def test_masks_differ_between_epochs_and_are_fixed_for_validation() -> None:
    text = MaskedText(TEXT, 32, [1], [2], MASKING)
    starts = np.array([60, 0])
    first, again, other = (text.load(starts, 30, 1, epoch) for epoch in (0, 0, 1))
    assert first.src.equal(again.src) and not first.positions.equal(other.positions)
    assert text.load(starts[:1], 30, 1, 0).src.equal(first.src[:1])  # whatever else is in a batch
    assert all(a.src.equal(b.src) for a, b in zip(text.fixed(64), text.fixed(64), strict=True))


def test_a_resumed_stream_is_exact() -> None:
    text = MaskedText(TEXT, 32, [1], [2], MASKING)
    with closing(text.stream(640, seed=3)) as stream:
        batches = list(islice(stream, 12))  # over the end of an epoch
    with closing(text.stream(640, seed=3)) as stream:
        list(islice(stream, 7))
        state = stream.state()
    assert state["epoch"] == 1
    with closing(text.stream(640, seed=3, state=state)) as stream:
        for expected, found in zip(batches[7:], stream, strict=False):
            assert found.src.equal(expected.src) and found.positions.equal(expected.positions)
            assert found.targets.equal(expected.targets)

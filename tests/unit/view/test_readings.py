"""Readings of attention against numbers worked out by hand."""

from collections.abc import Callable
from dataclasses import replace
from math import log

import numpy as np
import pytest
from torch_readers import attend_with_torch

from headwise.errors import UserError
from headwise.runtime.search.translator import TextTranslator
from headwise.view.readings import (
    alignment_row,
    between_words,
    clearest_head,
    distance,
    distance_from_diagonal,
    entropy,
    head_average,
    layer_average,
    rollout,
    stack_rollout,
)
from headwise.view.record import AttentionRecord, Axis, Word


def array(values: object) -> np.ndarray:
    return np.array(values, dtype=np.float32)


SPREAD = array([[[0.5, 0.5], [0, 1]], [[1, 0], [0, 1]]])


def test_averages() -> None:
    np.testing.assert_allclose(head_average(SPREAD), [[0.75, 0.25], [0, 1]])
    np.testing.assert_allclose(layer_average([None, SPREAD, array([[[0, 1], [1, 0]]])]), [[0.375, 0.625], [0.5, 0.5]])
    with pytest.raises(UserError, match="no layer"):
        layer_average([None])


def test_entropy_in_nats() -> None:
    np.testing.assert_allclose(entropy(SPREAD), [log(2) / 2, 0], atol=1e-7)


def test_distance_in_pieces() -> None:
    far = array([[[0, 0, 1], [0.5, 0, 0.5], [0, 0, 1]]])
    np.testing.assert_allclose(distance(SPREAD), [0.25, 0])
    np.testing.assert_allclose(distance(far), [(2 + 1 + 0) / 3], rtol=1e-6)


def test_distance_from_the_diagonal() -> None:
    """Two target pieces read at 1/4 and 3/4 of four source pieces, which stand at 1/8, 3/8, 5/8 and 7/8."""
    straight, crossed = [[1, 0, 0, 0], [0, 0, 0, 1]], [[0, 0, 0, 1], [1, 0, 0, 0]]
    np.testing.assert_allclose(distance_from_diagonal(array([straight, crossed])), [0.125, 0.625])


def test_words_sum_what_is_looked_at_and_average_what_looks() -> None:
    weights = array([[[0.1, 0.2, 0.7], [0.3, 0.3, 0.4], [0.5, 0.25, 0.25]]])
    words = [Word("ab", 0, 2), Word("c", 2, 3)]
    np.testing.assert_allclose(between_words(weights, words, words[:1]), [[[0.45], [0.75]]], rtol=1e-6)
    assert between_words(weights[0], [], words).shape == (0, 2)
    assert between_words(weights[0], words, []).shape == (2, 0)


def test_words_by_the_rows_that_read_their_pieces() -> None:
    weights = array([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4], [0.5, 0.25, 0.25]])
    words = [Word("ab", 0, 2), Word("c", 2, 3)]
    found = between_words(weights, words, words[:1], "reads")
    np.testing.assert_allclose(found, [[(0.6 + 0.75) / 2], [0]], rtol=1e-6)  # nothing has read the last piece
    with pytest.raises(UserError, match=r"row 'read'.*'reads'"):
        between_words(weights, words, words, "read")


def test_the_clearest_head_looks_at_each_word_in_its_turn() -> None:
    end = [0, 0, 1]
    even, stuck, turning = [[0.5, 0.5, 0]] * 3, [[1, 0, 0]] * 3, [[0.1, 0.7, 0.2], [0.7, 0.1, 0.2], end]
    resting = [end] * 3  # on the end mark, which is no word
    layers = [array([stuck, even]), None, array([resting, turning, turning])]
    words = [Word("a", 0, 1), Word("b", 1, 2)]
    pair = AttentionRecord("", "", Axis(["a", "b", "</s>"], words), Axis(["c", "d", "</s>"], words), [], [], [], layers)
    assert clearest_head(pair) == (2, 1, "predicts")
    one_word = Axis(["c", "d", "</s>"], [Word("cd", 0, 2)])  # as where words have no blanks
    assert clearest_head(replace(pair, tgt=one_word)) == (2, 1, "predicts")
    assert clearest_head(replace(pair, cross=[None])) is None
    assert clearest_head(replace(pair, src=Axis(pair.src.labels))) is None


def test_a_head_that_looks_at_declared_tokens_aligns_nothing() -> None:
    """One head turns from the tag to a word, the other from word to word, less sharply."""
    tagging, turning = (
        [[0.9, 0, 0.1, 0], [0, 0, 1, 0], [0, 0, 0, 1]],
        [[0, 0.8, 0.2, 0], [0, 0.2, 0.8, 0], [0, 0, 0, 1]],
    )
    words = [Word("<2de>", 0, 1, declared=True), Word("a", 1, 2), Word("b", 2, 3)]
    src = Axis(["<2de>", "a", "b", "</s>"], words)
    tgt = Axis(["c", "d", "</s>"], [Word("c", 0, 1), Word("d", 1, 2)])
    pair = AttentionRecord("", "", src, tgt, [], [], [], [array([tagging, turning])])
    assert clearest_head(pair) == (0, 1, "predicts")
    counted = replace(src, words=[replace(word, declared=False) for word in words])
    assert clearest_head(replace(pair, src=counted)) == (0, 0, "predicts")


def shifted(order: list[int], row: str, sharpness: float = 0.8) -> np.ndarray:
    """Weights of one head on a source of as many pieces and an end mark: target piece i is linked to `order[i]`."""
    length = len(order) + 1
    looked_at = [length - 1, *order] if row == "reads" else [*order, length - 1]  # at the end mark where at no piece
    rest = (1 - sharpness) / (length - 1)
    return array(np.where(np.eye(length, dtype=bool)[looked_at], sharpness, rest))


@pytest.mark.parametrize("row", ["predicts", "reads"])
@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [0, 4, 3, 1, 2], [4, 3, 2, 1, 0]], ids=str)
def test_the_row_that_links_are_read_from(order: list[int], row: str) -> None:
    """The sharpest head looks a step late or not; the last layer but one, which is less sharp, looks in time."""
    labels = [f"▁{i}" for i in range(5)]
    words = [Word(label, i, i + 1) for i, label in enumerate(labels)]
    axis = Axis([*labels, "</s>"], words)
    even, usual = np.full((6, 6), 1 / 6, dtype=np.float32), shifted(order, "predicts", 0.4)
    sharpest = shifted(order, row)
    layers = [array([even, sharpest]), array([even, usual]), array([even, even])]
    pair = AttentionRecord("", "", axis, axis, [], [], [], layers)
    assert clearest_head(pair) == (0, 1, row)
    assert between_words(sharpest, words, words, row).argmax(1).tolist() == order
    assert alignment_row(pair, usual) == "predicts"


# Two encoder layers: the first hands piece 0 to both places, the second piece 1.
FIRST, SECOND = array([[[1, 0], [1, 0]]]), array([[[0, 1], [0, 1]]])
ENCODER = [[0.75, 0.25], [0.5, 0.5]]  # ((SECOND + I) / 2) ((FIRST + I) / 2)


def record(**layers: list) -> AttentionRecord:
    return AttentionRecord("", "", Axis(["a", "</s>"]), Axis(["</s>"]), ["<s>"], **layers)


def test_rollout_of_an_encoder() -> None:
    np.testing.assert_allclose(stack_rollout([FIRST, SECOND]), ENCODER)


def test_rollout_through_the_decoder() -> None:
    """After each layer half of what was there is left and half is what cross-attention brought."""
    itself, to_first, to_second = array([[[1]]]), array([[[1, 0]]]), array([[[0, 1]]])
    found = rollout(record(encoder=[FIRST, SECOND], decoder=[itself, itself], cross=[to_first, to_second]))
    np.testing.assert_allclose(found.encoder, ENCODER)
    np.testing.assert_allclose(found.target, [[0.25]])
    np.testing.assert_allclose(found.source, [[(0.375 + 0.5) / 2, (0.125 + 0.5) / 2]])


def test_rollout_needs_every_layer() -> None:
    with pytest.raises(UserError, match="every layer"):
        rollout(record(encoder=[FIRST, None], decoder=[], cross=[]))
    with pytest.raises(UserError, match="every layer"):
        rollout(record(encoder=[], decoder=[], cross=[array([[[1, 0]]])]))


def test_rollout_of_a_model_is_a_distribution(translator_of: Callable[[str], TextTranslator]) -> None:
    found = rollout(attend_with_torch(translator_of("post"), "Der Hund sieht", "A dog"))
    np.testing.assert_allclose(found.encoder.sum(1), 1, atol=1e-6)
    np.testing.assert_allclose(found.source.sum(1) + found.target.sum(1), 1, atol=1e-6)
    assert not np.triu(found.target, 1).any()

"""Word links out of attention weights: against sums by hand, in any company, from the right row."""

from typing import Any

import numpy as np
import pytest
import torch
from torch_readers import align_with_torch, rank_heads_with_torch

from headwise.config.data import TranslationData
from headwise.config.settings import from_dict
from headwise.errors import UserError
from headwise.pytorch.architectures.registry import Network, build_network
from headwise.pytorch.inspect.reader import TorchReader
from headwise.pytorch.inspect.recording import cross_attentions, head_counts, recording
from headwise.text.files.alignment import words_of_tokens
from headwise.text.files.links import GoldLinks
from headwise.text.tokens.tokenizer import Tokenizer
from headwise.view.alignment import (
    AlignmentHead,
    alignment_heads,
    default_head,
    grow_diagonal,
    symmetrized,
)

SOURCES = ["a little dog runs !", "two cats", "a dog sleeps on the old sofa", "", "x"]
TARGETS = ["ein kleiner Hund rennt !", "zwei Katzen", "ein Hund schläft auf dem alten Sofa", "nichts", ""]
TOKENIZER = Tokenizer.train(SOURCES + TARGETS, TranslationData(vocab_size=290))
SHAPES: dict[str, dict[str, Any]] = {
    "transformer": {"d_ff": 32, "n_heads": 2},
    "bahdanau": {"architecture": "recurrent"},
    "luong": {"architecture": "recurrent", "cell": "lstm", "attention": "general", "input_feeding": True},
    "conv": {"architecture": "conv", "positions": "learned", "max_len": 60},
}


def build(name: str = "transformer", **changes: Any) -> Network:
    shape = {"d_model": 16, "n_encoder_layers": 1, "n_decoder_layers": 2, "vocab_size": TOKENIZER.vocab_size}
    model = build_network(from_dict({"model": {**shape, **SHAPES[name], **changes}}, "test").model).eval()
    with torch.no_grad():  # large, so that attention is anything but even
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) / 2)
    return model


def by_hand(model: Network, src: str, tgt: str, head: AlignmentHead) -> set[tuple[int, int]]:
    """One pair, its weights summed cell by cell."""
    (src_ids, src_words), (tgt_ids, tgt_words) = words_of_tokens(TOKENIZER, src), words_of_tokens(TOKENIZER, tgt)
    tokens = torch.tensor([[*src_ids, TOKENIZER.eos_id]])
    mask = tokens != TOKENIZER.pad_id
    with torch.no_grad(), recording(cross_attentions(model)) as weights:
        model.decode(torch.tensor([[TOKENIZER.bos_id, *tgt_ids]]), model.encode(tokens, mask), mask)
    layer = [*weights.values()][head.layer][0]
    one = layer.mean(0) if head.head is None else layer[head.head]
    sums = np.zeros((len(tgt.split()), len(src.split())))
    for t, tgt_word in enumerate(tgt_words):
        for s, src_word in enumerate(src_words):
            row = t if head.row == "predicts" else t + 1
            sums[tgt_word, src_word] += one[row, s].item()
    return {(int(row.argmax()), j) for j, row in enumerate(sums)}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("row", ["predicts", "reads"])
def test_links_are_those_of_the_sums_by_hand(name: str, row: str) -> None:
    model = build(name)
    for head in (AlignmentHead(0, 0, row), AlignmentHead(len(cross_attentions(model)) - 1, None, row)):
        found = align_with_torch(model, TOKENIZER, SOURCES, TARGETS, head)
        for src, tgt, links in zip(SOURCES[:3], TARGETS[:3], found, strict=False):
            assert links == by_hand(model, src, tgt, head)


def test_blank_sides_have_no_links() -> None:
    assert align_with_torch(build(), TOKENIZER, SOURCES, TARGETS, AlignmentHead(0, 0, "reads"))[3:] == [
        frozenset(),
        frozenset(),
    ]


@pytest.mark.parametrize("batch_tokens", [1, 40, 4096])
def test_company_and_order_change_nothing(batch_tokens: int) -> None:
    model, head = build(), AlignmentHead(1, 1, "predicts")
    alone = [align_with_torch(model, TOKENIZER, [s], [t], head)[0] for s, t in zip(SOURCES, TARGETS, strict=True)]
    assert align_with_torch(model, TOKENIZER, SOURCES, TARGETS, head, batch_tokens) == alone
    assert align_with_torch(model, TOKENIZER, SOURCES[::-1], TARGETS[::-1], head, batch_tokens) == alone[::-1]


def test_every_head_and_mean_is_a_candidate() -> None:
    heads = alignment_heads(head_counts(build(n_decoder_layers=3))["cross"])
    assert len(heads) == len(set(heads)) == 3 * (2 + 1) * 2
    assert len(alignment_heads(head_counts(build("bahdanau"))["cross"])) == (1 + 1) * 2
    assert default_head(head_counts(build(n_decoder_layers=3))["cross"]) == AlignmentHead(1, None, "predicts")
    assert default_head(head_counts(build(n_decoder_layers=2))["cross"]) == AlignmentHead(1, None, "predicts")
    assert default_head(head_counts(build("bahdanau"))["cross"]).layer == 0


def test_ranking_finds_the_head_whose_links_are_asked_for() -> None:
    model = build()
    for head in (AlignmentHead(1, 0, "reads"), AlignmentHead(0, 1, "predicts"), AlignmentHead(1, None, "predicts")):
        links = align_with_torch(model, TOKENIZER, SOURCES, TARGETS, head)
        scores = rank_heads_with_torch(model, TOKENIZER, SOURCES, TARGETS, [GoldLinks(pair, pair) for pair in links])
        rates = [score.aer for score in scores.values()]
        assert scores[head].aer == 0 == rates[0]
        assert rates == sorted(rates)
        assert rates[-1] > 20


def test_the_end_mark_takes_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but a trace of the weight on the end mark: the words' traces decide."""

    weights = np.array([[[0.01, 0.02, 0.97], [0.02, 0.01, 0.97], [0.5, 0.5, 0.0]]], np.float32)
    monkeypatch.setattr(TorchReader, "cross_attention", lambda *_: iter([(0, {0: weights})]))
    tokenizer = Tokenizer.train(["a b c d"] * 3, TranslationData(vocab_size=300))
    assert [len(tokenizer.encode(text)) for text in ("a b", "c d")] == [2, 2]
    model = build(vocab_size=tokenizer.vocab_size, n_heads=1)
    assert align_with_torch(model, tokenizer, ["a b"], ["c d"], AlignmentHead(0, 0, "predicts")) == [{(1, 0), (0, 1)}]
    assert align_with_torch(model, tokenizer, ["a b"], ["c d"], AlignmentHead(0, 0, "reads")) == [{(0, 0), (0, 1)}]


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (AlignmentHead(2, None, "reads"), "layer 2: the decoder has .* in layers 0 to 1"),
        (AlignmentHead(-1, None, "reads"), "layer -1"),
        (AlignmentHead(0, 2, "reads"), "head 2: layer 0 has heads 0 to 1"),
        (AlignmentHead(0, 0, "writes"), "row 'writes'"),
    ],
)
def test_heads_that_are_not_there(head: AlignmentHead, message: str) -> None:
    with pytest.raises(UserError, match=message):
        align_with_torch(build(), TOKENIZER, ["a"], ["b"], head)


def test_what_cannot_be_aligned() -> None:
    head = AlignmentHead(0, 0, "reads")
    with pytest.raises(UserError, match="2 source but 1 target"):
        align_with_torch(build(), TOKENIZER, ["a", "b"], ["c"], head)
    with pytest.raises(UserError, match=r"2.*9 tokens.*8"):
        align_with_torch(build(), TOKENIZER, ["a", "xxxxxxx"], ["a", "a"], head, max_len=8)
    with pytest.raises(UserError, match="no attention over its source"):
        align_with_torch(build("bahdanau", attention="none"), TOKENIZER, ["a"], ["b"], head)


FORWARD = frozenset({(0, 0), (1, 1), (1, 2), (4, 4)})
BACKWARD = frozenset({(0, 0), (1, 1), (2, 1), (3, 3), (4, 3)})


def test_grow_diagonal_by_hand() -> None:
    """Both have 0-0 and 1-1. Beside 1-1 lie 1-2 and 2-1, each with a word that is new; 3-3 lies beside 2-2, which
    nobody has, and 4-4, 4-3 beside 3-3: none is reached.
    """
    assert grow_diagonal(FORWARD, BACKWARD) == {(0, 0), (1, 1), (1, 2), (2, 1)}


def test_grow_diagonal_walks_on_and_needs_a_new_word() -> None:
    """From 0-0 over the corner to 1-1 and on to 2-2; a link between words that both have one is not taken."""
    forward, backward = frozenset({(0, 0), (1, 1), (0, 1)}), frozenset({(0, 0), (2, 2)})
    assert grow_diagonal(forward, backward) >= {(0, 0), (1, 1), (2, 2)}
    both = frozenset({(0, 0), (1, 1)})
    assert grow_diagonal(both | {(0, 1)}, both) == both


def test_other_direction_is_turned() -> None:
    turned = frozenset((j, i) for i, j in BACKWARD)
    assert symmetrized([FORWARD], [turned]) == [grow_diagonal(FORWARD, BACKWARD)]

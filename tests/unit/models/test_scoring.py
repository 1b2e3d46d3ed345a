"""Forced decoding against a log softmax taken by hand, one pair at a time, on a tiny random Transformer."""

import math
from random import Random

import pytest
import torch
from torch_readers import score_pairs_with_torch, score_texts_with_torch

from headwise.config.data import TranslationData
from headwise.config.model import TransformerConfig
from headwise.core.transformer import Transformer
from headwise.errors import UserError
from headwise.evaluate.score import PairScore, corpus_perplexity
from headwise.pytorch.architectures.transformer import build_model
from headwise.text.tokens.tokenizer import Tokenizer

PAD, BOS, EOS = 0, 1, 2
VOCAB = 23


def tiny_model(vocab_size: int = VOCAB) -> Transformer:
    torch.manual_seed(0)
    return build_model(
        TransformerConfig(
            vocab_size=vocab_size,
            d_model=16,
            d_ff=32,
            n_heads=2,
            n_encoder_layers=1,
            n_decoder_layers=2,
            dropout=0.5,
        )
    )


def random_pairs(n: int) -> list[tuple[list[int], list[int]]]:
    rng = Random(1)

    def sentence() -> list[int]:
        return [rng.randrange(4, VOCAB) for _ in range(rng.randrange(0, 12))]

    return [(sentence(), sentence()) for _ in range(n)]


def by_hand(model: Transformer, src: list[int], tgt: list[int]) -> list[float]:
    """One pair, no padding, one log softmax per piece."""
    source = torch.tensor([[*src, EOS]])
    mask = torch.ones_like(source, dtype=torch.bool)
    with torch.no_grad():
        hidden = model.eval().states(source, torch.tensor([[BOS, *tgt]]), mask)
        log_probs = torch.log_softmax(model.logits(hidden)[0], dim=-1)
    return [log_probs[position, token].item() for position, token in enumerate([*tgt, EOS])]


def test_scores_are_the_log_softmax_taken_by_hand() -> None:
    model, pairs = tiny_model(), random_pairs(7)
    for (src, tgt), score in zip(pairs, score_pairs_with_torch(model, pairs), strict=True):
        expected = by_hand(model, src, tgt)
        assert score.token_log_probs == pytest.approx(expected, abs=1e-5)
        assert score.log_prob == pytest.approx(sum(expected), abs=1e-4)
        assert score.perplexity == pytest.approx(math.exp(-sum(expected) / len(expected)), rel=1e-4)


@pytest.mark.parametrize("batch_tokens", [1, 30, 100_000])
def test_batching_and_padding_change_nothing(batch_tokens: int) -> None:
    model, pairs = tiny_model(), random_pairs(20)
    alone = [score_pairs_with_torch(model, [pair])[0] for pair in pairs]
    together = score_pairs_with_torch(model, pairs, batch_tokens=batch_tokens)
    for one, other in zip(alone, together, strict=True):
        assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-5)


def test_batches_keep_to_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    model, pairs, sizes = tiny_model(), random_pairs(40), []

    def encode(src: torch.Tensor, src_mask: torch.Tensor) -> torch.Tensor:
        sizes.append(src.shape)
        return Transformer.encode(model, src, src_mask)

    monkeypatch.setattr(model, "encode", encode)
    score_pairs_with_torch(model, pairs, batch_tokens=60)
    assert all(rows * width <= 60 for rows, width in sizes)
    assert 1 < len(sizes) < 40


def test_order_is_that_of_the_input() -> None:
    model, pairs = tiny_model(), random_pairs(12)
    forwards = score_pairs_with_torch(model, pairs, batch_tokens=40)
    backwards = score_pairs_with_torch(model, pairs[::-1], batch_tokens=40)[::-1]
    for one, other in zip(forwards, backwards, strict=True):
        assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-5)


def test_empty_target_is_the_end_mark_alone() -> None:
    model = tiny_model()
    [score] = score_pairs_with_torch(model, [([5, 6], [])])
    assert score.token_log_probs == pytest.approx(by_hand(model, [5, 6], []), abs=1e-5)


def test_probabilities_of_all_targets_sum_to_one() -> None:
    """Every first piece, the end mark among them, as the first one of a target."""
    model = tiny_model()
    firsts = [score_pairs_with_torch(model, [([7], [token])])[0].token_log_probs[0] for token in range(VOCAB)]
    assert sum(map(math.exp, firsts)) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_no_dropout_and_the_mode_is_left_as_it_was(training: bool) -> None:
    model = tiny_model().train(training)
    assert score_pairs_with_torch(model, random_pairs(3)) == score_pairs_with_torch(model, random_pairs(3))
    assert all(module.training is training for module in model.modules())


def test_corpus_perplexity_weighs_pieces_and_not_pairs() -> None:
    scores = [PairScore([math.log(0.5)]), PairScore([math.log(0.25)] * 3)]
    assert corpus_perplexity(scores) == pytest.approx(2 ** (7 / 4))
    assert PairScore([-2000.0]).perplexity == math.inf


def test_nothing_to_score() -> None:
    assert score_pairs_with_torch(tiny_model(), []) == []


def test_texts_are_scored_as_their_ids() -> None:
    sources, targets = ["a dog runs", "", "two cats"], ["ein Hund rennt", "nichts", ""]
    tokenizer = Tokenizer.train(sources + targets, TranslationData(vocab_size=300))
    model = tiny_model(tokenizer.vocab_size)
    scores = score_texts_with_torch(model, tokenizer, sources, targets)
    for src, tgt, score in zip(sources, targets, scores, strict=True):
        expected = by_hand(model, tokenizer.encode(src), tokenizer.encode(tgt))
        assert score.token_log_probs == pytest.approx(expected, abs=1e-5)


def test_unequal_counts_are_refused() -> None:
    tokenizer = Tokenizer.train(["a"], TranslationData(vocab_size=300))
    with pytest.raises(UserError, match="2 source but 1 target"):
        score_texts_with_torch(tiny_model(), tokenizer, ["a", "b"], ["a"])


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_damaged_model_has_no_score(value: float) -> None:
    model = tiny_model()
    with torch.no_grad():
        model.encoder.layers[0].ffn.up_proj.weight[0, 0] = value
    with pytest.raises(UserError, match="predictions are not finite: its training diverged or its file is damaged"):
        score_pairs_with_torch(model, random_pairs(3))

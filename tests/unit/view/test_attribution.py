"""Integrated gradients: their sum, an integral taken by other means, and a model that is left as it was."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch_readers import read_pair_tensors

from headwise.errors import UserError
from headwise.pytorch.inspect import attribution
from headwise.pytorch.inspect.attribution import attribute
from headwise.runtime.search.translator import TextTranslator

TranslatorOf = Callable[[str], TextTranslator]
SOURCE, TARGET = "Der Hund sieht", "A dog runs"


@pytest.mark.parametrize(
    ("variant", "steps", "tolerance"),
    [
        ("calm", 256, 0.02),  # every corner of a ReLU costs some exactness
        *((smooth, 64, 1e-3) for smooth in ("bahdanau", "luong", "reversed", "conv")),
    ],
)
def test_shares_sum_to_what_the_source_changed(
    variant: str, steps: int, tolerance: float, translator_of: TranslatorOf
) -> None:
    found = attribute(translator_of(variant), SOURCE, TARGET, steps)
    changed = found.log_probs - found.baseline
    assert abs(changed).max() > 0.1
    np.testing.assert_allclose(found.pieces.sum(1), changed, rtol=0, atol=tolerance * abs(changed).max())
    assert found.gap == pytest.approx(abs(found.pieces.sum(1) - changed).max())
    assert not found.pieces[:, -1].any()  # the end mark is there with and without a source
    for word, row in zip(found.tgt_words, found.words, strict=True):
        assert row.sum() == pytest.approx(found.pieces[word.start : word.stop].sum(), abs=1e-5)


def test_log_probabilities_are_those_of_the_pair(translator_of: TranslatorOf) -> None:
    translator = translator_of("post")
    network: Any = translator.model
    found = attribute(translator, SOURCE, TARGET, steps=1)
    pair = read_pair_tensors(translator, SOURCE, TARGET, "", translator.config)
    with torch.no_grad():
        log_probs = network.eval().logits(pair.read_by(network))[0].log_softmax(-1)
    np.testing.assert_allclose(found.log_probs, log_probs[range(len(pair.tgt)), pair.tgt], atol=1e-5)


def test_against_an_integral_by_the_midpoint_rule(translator_of: TranslatorOf) -> None:
    """By scaling the rows of the table itself, which no other side uses here, and the gradient it gets."""
    translator, steps = translator_of("untied"), 100
    network: Any = translator.model
    network.eval()
    pair = read_pair_tensors(translator, SOURCE, TARGET, "", translator.config)
    assert len(set(pair.src)) == len(pair.src)
    rows, table = pair.src[:-1], network.src_embeddings.weight
    original, total = table.detach().clone(), torch.zeros(len(pair.tgt), len(rows), table.size(1))
    for step in range(steps):
        with torch.no_grad():
            table[rows] = original[rows] * (step + 0.5) / steps
        log_probs = network.logits(pair.read_by(network))[0].log_softmax(-1)
        for place, token in enumerate(pair.tgt):
            total[place] += torch.autograd.grad(log_probs[place, token], table, retain_graph=True)[0][rows] / steps
    with torch.no_grad():
        table.copy_(original)
    expected = (total * original[rows]).sum(-1)
    found = attribute(translator, SOURCE, TARGET)
    np.testing.assert_allclose(found.pieces[:, :-1], expected, rtol=0, atol=2e-3 * float(expected.abs().max()))


def test_size_of_passes_changes_nothing(translator_of: TranslatorOf, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = attribute(translator_of("post"), SOURCE, TARGET, steps=8)
    monkeypatch.setattr(attribution, "BATCH_TOKENS", 20)
    pieces = attribute(translator_of("post"), SOURCE, TARGET, steps=8).pieces
    np.testing.assert_allclose(pieces, whole.pieces, rtol=0, atol=1e-5 * abs(whole.pieces).max())


@pytest.mark.parametrize("variant", ["post", "conv"])
def test_the_model_is_left_as_it_was(variant: str, translator_of: TranslatorOf) -> None:
    network: Any = translator_of(variant).model
    scale = getattr(network.encoder, "gradient_scale", None)
    network.train()
    attribute(translator_of(variant), SOURCE, TARGET, steps=2)
    assert network.training and getattr(network.encoder, "gradient_scale", None) == scale
    assert all(parameter.grad is None for parameter in network.parameters())
    assert not any(module._forward_hooks for module in network.modules())


def test_a_translation_is_made_if_none_is_given(translator_of: TranslatorOf) -> None:
    translator = translator_of("bahdanau")
    found = attribute(translator, SOURCE, steps=2, beam_size=1)
    assert found.translation == translator.translate([SOURCE], beam_size=1)[0].text
    assert found.pieces.shape == (len(found.tgt_pieces), len(found.src_pieces))
    assert found.words.shape == (len(found.tgt_words), 3)


def test_no_target_words(translator_of: TranslatorOf) -> None:
    assert attribute(translator_of("post"), SOURCE, "", steps=2).words.shape == (0, 3)


def test_what_users_get_wrong(translator_of: TranslatorOf, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="steps = 0"):
        attribute(translator_of("post"), SOURCE, TARGET, steps=0)
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    with pytest.raises(UserError, match=r'pip install "headwise\[inspect\]"'):
        attribute(translator_of("post"), SOURCE, TARGET)

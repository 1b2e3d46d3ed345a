"""Translations during validation: their search, and length limits for untrained models."""

from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
import torch

from headwise.config.data import TranslationData
from headwise.config.model import TransformerConfig
from headwise.config.settings import SearchSettings
from headwise.pytorch.architectures.transformer import build_model
from headwise.pytorch.search.compiled import native_available
from headwise.pytorch.tasks.translation import bleu
from headwise.pytorch.tasks.validation import CHUNK, FIRST, validation_translations
from headwise.runtime.native.network import CompiledNetwork
from headwise.runtime.search.translator import TextTranslator, Translation
from headwise.text.tokens.tokenizer import Tokenizer

TEXTS = ["A dog runs across the field .", "Two men are talking .", "The dog sees the men ."]
TOKENIZER = Tokenizer.train(TEXTS * 10, TranslationData(vocab_size=290))
MODEL = TransformerConfig(
    vocab_size=TOKENIZER.vocab_size, d_model=16, d_ff=16, n_heads=2, n_encoder_layers=1, n_decoder_layers=1
)
CONFIG = SearchSettings(beam_size=2, max_length_factor=1.0, max_length_extra=60)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, int, dict[str, Any], list[Translation]]]:
    """The calls of the translator: model, number of texts, settings, results."""
    seen: list[tuple[Any, int, dict[str, Any], list[Translation]]] = []
    translate = TextTranslator.translate

    def recorded(self: TextTranslator, texts: Any, **overrides: Any) -> Any:
        found = translate(self, texts, **overrides)
        seen.append((self.engine(self.config), len(texts), overrides, found))
        return found

    monkeypatch.setattr(TextTranslator, "translate", recorded)
    return seen


def pairs(count: int) -> list[tuple[str, str]]:
    return [(TEXTS[i % 3], TEXTS[(i + 1) % 3]) for i in range(count)]


def test_output_length_is_limited_without_end_tokens(calls: list[Any]) -> None:
    network, endless = build_model(MODEL).eval(), replace(CONFIG, min_length_factor=9.0)
    many = pairs(FIRST + CHUNK + 3)
    texts = [*validation_translations(network, TOKENIZER, endless, None, many)]
    assert bleu([*chain.from_iterable(texts)], many) < 5
    assert [*map(len, texts)] == [count for _, count, _, _ in calls] == [FIRST, CHUNK, 3]
    longest = [max(len(t.pieces) for t in found) for _, _, _, found in calls]
    pieces = max(len(TOKENIZER.encode(text)) for text in TEXTS)
    assert longest[0] > 60 and max(longest[1:]) < 2 * pieces + 8
    assert not calls[0][2] and calls[1][2]["max_length_extra"] == 5
    if native_available(network):
        assert all(isinstance(model, CompiledNetwork) for model, *_ in calls)


def test_stricter_length_settings_are_kept(calls: list[Any]) -> None:
    network = build_model(MODEL).eval()
    tight = replace(CONFIG, max_length_factor=0.1, max_length_extra=2)
    assert len([*validation_translations(network, TOKENIZER, tight, None, pairs(FIRST + 1))]) == 2
    assert all(not overrides for _, _, overrides, _ in calls)


def test_a_model_that_ends_its_sentences_is_judged_as_by_evaluate(
    calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    network = build_model(MODEL).eval()
    with torch.no_grad():
        network.output.weight[TOKENIZER.eos_id] *= 4
    short = replace(CONFIG, max_length_factor=1.0, max_length_extra=5)
    ours = [*validation_translations(network, TOKENIZER, short, None, pairs(40))]
    assert [count for _, count, _, _ in calls] == [FIRST, 8] and not calls[1][2]
    monkeypatch.setattr("headwise.pytorch.tasks.validation.native_available", lambda _: False)
    assert [*validation_translations(network, TOKENIZER, short, None, pairs(40))] == ours
    assert calls[-1][0].model is network

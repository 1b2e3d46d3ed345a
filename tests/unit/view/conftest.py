"""Small models of every architecture with a real tokenizer, ready to be looked into."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch

from headwise.config.data import TranslationData
from headwise.config.model import longest_sequence
from headwise.config.settings import SearchSettings, check, from_dict
from headwise.pytorch.architectures.registry import build_network, decoding_variants
from headwise.pytorch.search.stepwise import engine_of
from headwise.runtime.search.translator import TextTranslator
from headwise.text.tokens.tokenizer import Tokenizer

RECURRENT: dict[str, Any] = {"architecture": "recurrent", "n_encoder_layers": 1, "n_decoder_layers": 1}
VARIANTS: dict[str, dict[str, Any]] = {
    "post": {"n_heads": 2, "d_ff": 24, "n_encoder_layers": 2, "n_decoder_layers": 3},
    "calm": {"n_heads": 2, "d_ff": 24, "n_encoder_layers": 1, "n_decoder_layers": 1, "norm_position": "pre"},
    "pre": {"n_heads": 2, "d_ff": 24, "n_encoder_layers": 2, "n_decoder_layers": 2, "norm_position": "pre"},
    "pruned": {"n_heads": 2, "d_ff": 24, "n_encoder_layers": 1, "n_decoder_layers": 1, "cross_heads": [1]},
    "bahdanau": {**RECURRENT, "bidirectional": True},
    "untied": {**RECURRENT, "bidirectional": True, "tied_embeddings": "none"},
    "luong": {**RECURRENT, "cell": "lstm", "attention": "general", "input_feeding": True, "bidirectional": False},
    "reversed": {**RECURRENT, "attention": "dot", "bidirectional": False, "reverse_source": True},
    "conv": {"architecture": "conv", "positions": "learned", "max_len": 120, "n_encoder_layers": 2}
    | {"n_decoder_layers": 2},
    "summary": {**RECURRENT, "attention": "none", "bidirectional": False},
}
LINES = ["A dog runs across the field .", "Zwei Männer reden .", "Der Hund sieht die Männer ."] * 20


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(LINES, TranslationData(vocab_size=340), special=["<2de>"])


@pytest.fixture(scope="session")
def translator_of(tokenizer: Tokenizer) -> Callable[[str], TextTranslator]:
    """A translator of a variant with random parameters, large enough that attention is not even; made once."""

    @cache
    def make(variant: str) -> TextTranslator:
        torch.manual_seed(1)
        shape = {"d_model": 16, "dropout": 0.3, "vocab_size": tokenizer.vocab_size, **VARIANTS[variant]}
        config = check(from_dict({"model": shape}, "test")).model
        network = build_network(config)
        with torch.no_grad():
            for parameter in network.parameters() if variant != "calm" else ():
                parameter.mul_(1.7)
        decoding = SearchSettings(beam_size=3, max_length_factor=1.0, max_length_extra=4)
        form = decoding_variants(network) if variant == "post" else lambda _: network  # the others decode as they are
        return TextTranslator(
            lambda compute: engine_of(form(compute)),
            tokenizer,
            decoding,
            longest_sequence(config),
            model=lambda: network,
        )

    return make

"""Small Transformers with random parameters, in model directories."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from headwise.config.data import TranslationData
from headwise.config.model import TransformerConfig
from headwise.config.settings import RunConfig
from headwise.core.build import parameters_of
from headwise.pytorch.architectures.transformer import build_model
from headwise.runtime.checkpoint.trained import write_settings, write_weights
from headwise.text.tokens.tokenizer import Tokenizer

LINES = ["A dog runs over the meadow.", "Ein Hund rennt über die Wiese.", "Two men are playing with it!"]


@pytest.fixture(scope="session")
def make_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Writes a model of some shape; its tokenizer knows a few words."""
    tokenizer = Tokenizer.train(LINES * 3, TranslationData(vocab_size=300))

    def make(**shape: object) -> Path:
        torch.manual_seed(4)
        small = {"d_model": 16, "d_ff": 24, "n_heads": 2, "n_encoder_layers": 2, "n_decoder_layers": 1}
        config = TransformerConfig(**{"vocab_size": tokenizer.vocab_size, **small, **shape})
        network = build_model(config)
        with torch.no_grad():  # large, so that no two pieces are nearly as likely, and biases and gains count
            for name, parameter in network.named_parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
                if "_attn." in name:  # or the source would have no influence
                    parameter.mul_(3)
        folder = tmp_path_factory.mktemp("model") / "model"
        write_settings(folder, RunConfig(model=config), tokenizer, {})
        write_weights(folder, parameters_of(network), "# A model\n")
        return folder

    return make

"""The table of architectures."""

from dataclasses import replace

import pytest

from headwise.config.model import MODELS, TransformerConfig, longest_sequence
from headwise.config.setting import converted
from headwise.config.settings import SETTINGS
from headwise.errors import UserError
from headwise.pytorch.architectures.registry import ARCHITECTURES, build_network, decoding_variants
from headwise.pytorch.search.inference import PrecisionVariants

CONFIG = TransformerConfig(vocab_size=11, d_model=8, d_ff=16, n_heads=2, n_encoder_layers=1, n_decoder_layers=1)


def test_every_architecture_is_built() -> None:
    assert (*ARCHITECTURES,) == SETTINGS["model.architecture"].choices == (*MODELS,)
    for name, table in MODELS.items():
        config = replace(converted(CONFIG, table), architecture=name)
        assert build_network(config).output.weight.shape == (11, 8)


def test_unknown_architecture_gets_a_suggestion() -> None:
    with pytest.raises(UserError, match=r"'transfomer'.*'transformer'\?"):
        build_network(replace(CONFIG, architecture="transfomer"))


def test_only_learned_positions_have_a_limit() -> None:
    assert longest_sequence(CONFIG) is None
    assert longest_sequence(replace(CONFIG, positions="learned", max_len=9)) == 9


def test_a_transformer_has_precision_variants() -> None:
    assert isinstance(decoding_variants(build_network(CONFIG)), PrecisionVariants)

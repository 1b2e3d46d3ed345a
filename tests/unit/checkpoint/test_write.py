"""The way back: axes to the config.json of a family, and what it cannot say."""

from dataclasses import replace
from typing import Any

import pytest

from headwise.families.registry import FAMILIES
from headwise.pytorch.checkpoint.write import config_to_hf

UNEVEN: dict[str, Any] = {  # every value is one that nobody would assume
    "d_model": 12,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 6,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 28,
    "activation_function": "silu",
    "scale_embedding": True,
    "tie_word_embeddings": False,
    "vocab_size": 11,
}
FAMILY_KEYS = {"marian": {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 13}, "pegasus": {}}


@pytest.mark.parametrize("family", FAMILY_KEYS)
def test_axes_there_and_back(family: str) -> None:
    values = {"model_type": family, **UNEVEN, **FAMILY_KEYS[family]}
    config = FAMILIES[family].config_from_hf(values)
    written, lost = config_to_hf(config)
    assert lost == [] and FAMILIES[family].config_from_hf(written) == config
    assert {name: written[name] for name in values} == values


def test_what_a_family_cannot_say_is_named() -> None:
    config = FAMILIES["pegasus"].config_from_hf({"model_type": "pegasus", **UNEVEN})
    assert config.encoder and config.decoder
    strange = replace(config, share_embeddings=False, decoder=replace(config.decoder, gated=True, dropout=0.5))
    assert config_to_hf(strange)[1] == ["share_embeddings = False", "decoder.gated = True"]

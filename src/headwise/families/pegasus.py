"""Pegasus (arXiv:1912.08777): a Transformer for summarisation; our pre-norm models are exported in this format.

Changes to the Transformer: pre-norm layers with a final norm, sines and cosines in halves
instead of alternating, a bias on the logits.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headwise.config.network import NetworkConfig
from headwise.families import bart, marian
from headwise.families.family import Traits
from headwise.families.keys import Keys

HEADS = {"PegasusForConditionalGeneration": "language", "PegasusModel": "language"}


def config_from_hf(values: Mapping[str, Any]) -> NetworkConfig:
    """The configuration from a `config.json`; `UserError` for unsupported keys."""
    k = Keys(values)
    k.only("normalize_before", True)
    k.only("add_final_layer_norm", True)
    k.only("normalize_embedding", False)
    max_len = k.size("max_position_embeddings", default=1024)
    encoder, decoder = (
        replace(bart.stack_from_hf(k, side), positions="sinusoidal", max_len=max_len) for side in ("encoder", "decoder")
    )
    config = NetworkConfig(
        "pegasus",
        vocab_size=k.size("vocab_size"),
        encoder=encoder,
        decoder=decoder,
        head=k.head(HEADS),
        head_bias=True,
        tie_head=k.flag("tie_word_embeddings", default=True),
    )
    k.only("is_decoder", False)
    k.done(ignored=bart.OLD)
    return config


def config_to_hf(config: NetworkConfig) -> dict[str, Any]:
    """The `config.json` of a network, without token ids."""
    return bart.network_to_hf(config, HEADS)


# "FP16 is not supported" (https://github.com/huggingface/transformers/issues/9257).
FAMILY = replace(
    marian.FAMILY,
    config_from_hf=config_from_hf,
    config_to_hf=config_to_hf,
    overflows=True,
    traits=Traits("PegasusTokenizer", summarizes=True),
)

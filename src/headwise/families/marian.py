"""Marian (arXiv:1804.00344), opus-mt: the paper's Transformer, trained for a thousand language pairs.

Changes to the Transformer: sines and cosines in halves instead of alternating, a bias on the logits, often SiLU.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headwise.config.network import NetworkConfig
from headwise.families import bart
from headwise.families.family import Family, Traits
from headwise.families.keys import Keys

HEADS = {"MarianMTModel": "language", "MarianModel": "language"}
NAMES = {**bart.STACKS, "final_logits_bias": "+head.output.bias", "lm_head.weight": "head.output.weight"}


def config_from_hf(values: Mapping[str, Any]) -> NetworkConfig:
    """The configuration from a `config.json`; `UserError` for unsupported keys."""
    k = Keys(values)
    k.only("normalize_before", False)
    k.only("add_final_layer_norm", False)
    k.only("normalize_embedding", False)
    max_len = k.size("max_position_embeddings", default=1024)
    encoder, decoder = (
        replace(bart.stack_from_hf(k, side), norm_position="post", positions="sinusoidal", max_len=max_len)
        for side in ("encoder", "decoder")
    )
    config = NetworkConfig(
        "marian",
        vocab_size=k.size("vocab_size"),
        encoder=encoder,
        decoder=decoder,
        head=k.head(HEADS),
        head_bias=True,
        share_embeddings=k.flag("share_encoder_decoder_embeddings", default=True),
        tgt_vocab_size=k.size("decoder_vocab_size", default=0),
        tie_head=k.flag("tie_word_embeddings", default=True),
    )
    k.only("is_decoder", False)
    k.done(ignored=bart.OLD)
    return config


def config_to_hf(config: NetworkConfig) -> dict[str, Any]:
    """The `config.json` of a network, without token ids."""
    two_vocabularies = {"decoder_vocab_size": config.tgt_vocab_size} if config.tgt_vocab_size else {}
    share = {"share_encoder_decoder_embeddings": config.share_embeddings}
    return {**bart.network_to_hf(config, HEADS), **share, **two_vocabularies}


FAMILY = Family(
    config_from_hf,
    NAMES,
    bart.embedding_names,
    prefix="model.",
    ignored=rf"embed_positions\.weight$|{bart.IGNORED}",
    same=bart.SAME,
    config_to_hf=config_to_hf,
    traits=Traits("MarianTokenizer"),
)

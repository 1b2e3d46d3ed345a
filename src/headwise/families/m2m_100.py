"""M2M-100 (arXiv:2010.11125) and NLLB (arXiv:2207.04672): one Transformer for a hundred, and two hundred, languages.

Changes to the Transformer: pre-norm layers with a final norm; sines and cosines in halves, with
tensor2tensor's frequencies; positions do not count padding.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headwise.config.network import NetworkConfig
from headwise.families import bart
from headwise.families.family import Family, Traits
from headwise.families.keys import Keys

HEADS = {"M2M100ForConditionalGeneration": "language", "M2M100Model": "language"}
NAMES = {**bart.STACKS, "lm_head": "head.output"}


def config_from_hf(values: Mapping[str, Any]) -> NetworkConfig:
    """The configuration from a `config.json`; `UserError` for unsupported keys."""
    k = Keys({"activation_function": "relu", "scale_embedding": True, **values})  # defaults
    pad_id = k.size("pad_token_id", default=1, least=0)
    max_len = k.size("max_position_embeddings", default=1024)
    encoder, decoder = (
        replace(
            bart.stack_from_hf(k, side),
            positions="sinusoidal_tensor2tensor",
            position_offset=pad_id + 1,
            count_from=pad_id,
            max_len=max_len,
        )
        for side in ("encoder", "decoder")
    )
    config = NetworkConfig(
        "m2m_100",
        vocab_size=k.size("vocab_size"),
        encoder=encoder,
        decoder=decoder,
        head=k.head(HEADS),
        tie_head=k.flag("tie_word_embeddings", default=True),
    )
    k.only("is_decoder", False)
    k.done(ignored=bart.OLD)
    return config


FAMILY = Family(
    config_from_hf,
    NAMES,
    bart.embedding_names,
    prefix="model.",
    ignored=rf"embed_positions\.weights?$|^final_logits_bias$|{bart.IGNORED}",
    same=bart.SAME,
    traits=Traits("M2M100Tokenizer", language_codes=True),
)

"""Mistral (arXiv:2310.06825): LLaMA with sliding-window attention."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headwise.config.network import NetworkConfig
from headwise.families import llama
from headwise.families.family import Family, FamilyDropout, Traits
from headwise.families.keys import Keys

HEADS = {"MistralForCausalLM": "language", "MistralModel": "none"}


def config_from_hf(values: Mapping[str, Any]) -> NetworkConfig:
    """The configuration from a `config.json`; `UserError` for unsupported keys."""
    k = Keys({"sliding_window": 4096, **values})  # the default if the key is missing; null = none
    k.only("attention_bias", False)
    stack, window = llama.stack_from_hf(k), k.size("sliding_window", default=0)
    head = k.head(HEADS)
    config = NetworkConfig(
        "mistral",
        vocab_size=k.size("vocab_size"),
        decoder=replace(
            stack, activation=k.activation("hidden_act", "silu"), windows=(window,) * stack.n_layers if window else ()
        ),
        head=head,
        tie_head=k.flag("tie_word_embeddings", default=False) and head == "language",
    )
    k.done(ignored="max_position_embeddings")
    return config


FAMILY = Family(
    config_from_hf,
    llama.NAMES,
    prefix="model.",
    heads=HEADS,
    ignored=llama.IGNORED,
    traits=Traits("", misnames_tokenizer=True, dropout=FamilyDropout(paper=0.0)),
)

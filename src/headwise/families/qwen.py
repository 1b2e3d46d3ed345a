"""Qwen 2 (arXiv:2407.10671) and 3 (arXiv:2505.09388).

Qwen 2 is LLaMA with biases on queries, keys and values. Qwen 3 replaces them by norms on every head's queries and keys.
Upper layers may use sliding-window attention.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headwise.config.network import NetworkConfig, StackConfig
from headwise.families import llama
from headwise.families.family import Family, FamilyDropout, Traits
from headwise.families.keys import LAYER_KINDS, Keys

HEADS = {"Qwen2ForCausalLM": "language", "Qwen2Model": "none", "Qwen3ForCausalLM": "language", "Qwen3Model": "none"}
NAMES = {
    **llama.NAMES,
    "model.layers.{i}.self_attn.q_norm": "decoder.layers.{i}.self_attn.q_norm",
    "model.layers.{i}.self_attn.k_norm": "decoder.layers.{i}.self_attn.k_norm",
}


def config_from_hf_2(values: Mapping[str, Any]) -> NetworkConfig:
    """The configuration from a `config.json` of Qwen 2; `UserError` for unsupported keys."""
    k = Keys(values)
    return _config("qwen2", k, replace(llama.stack_from_hf(k), attention_bias="qkv"))


def config_from_hf_3(values: Mapping[str, Any]) -> NetworkConfig:
    """The configuration from a `config.json` of Qwen 3; `UserError` for unsupported keys."""
    k = Keys({"head_dim": 128, **values})  # default of older files
    bias = "qkvo" if k.flag("attention_bias", default=False) else ""
    return _config("qwen3", k, replace(llama.stack_from_hf(k), attention_bias=bias, normalise_heads=True))


def _config(family: str, k: Keys, stack: StackConfig) -> NetworkConfig:
    k.only("use_mrope", False)
    stack = replace(stack, activation=k.activation("hidden_act", "silu"), windows=_windows(k, stack.n_layers))
    head = k.head(HEADS)
    config = NetworkConfig(
        family,
        vocab_size=k.size("vocab_size"),
        decoder=stack,
        head=head,
        tie_head=k.flag("tie_word_embeddings", default=False) and head == "language",
    )
    k.done(ignored="max_position_embeddings")
    return config


def _windows(k: Keys, n_layers: int) -> tuple[int, ...]:
    """The sliding window of each layer; () without any."""
    window, used = k.size("sliding_window", default=4096), k.flag("use_sliding_window", default=False)
    first = k.size("max_window_layers", default=28, least=0)
    kinds = k.layer_kinds(n_layers, [LAYER_KINDS[i >= first] for i in range(n_layers)])
    windows = tuple(window if used and kind == LAYER_KINDS[1] else 0 for kind in kinds)
    return windows if any(windows) else ()


TRAITS = Traits("Qwen2Tokenizer", dropout=FamilyDropout(paper=0.0))
FAMILY_3 = Family(config_from_hf_3, NAMES, prefix="model.", heads=HEADS, ignored=llama.IGNORED, traits=TRAITS)
FAMILY_2 = replace(FAMILY_3, config_from_hf=config_from_hf_2, traits=replace(TRAITS, misnames_tokenizer=True))

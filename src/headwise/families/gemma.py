"""Gemma (arXiv:2403.08295) and Gemma 2 (arXiv:2408.00118): LLaMA with GELU, wider heads and scaled, tied embeddings.

Gemma 2 has norms before and after each sub-layer, soft caps on scores and logits, and a sliding window in every other
layer.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headwise.config.network import NetworkConfig, StackConfig
from headwise.families import llama
from headwise.families.family import Family, FamilyDropout, Traits
from headwise.families.keys import Keys

HEADS = {"GemmaForCausalLM": "language", "GemmaModel": "none", "Gemma2ForCausalLM": "language", "Gemma2Model": "none"}
NAMES_2 = {
    **llama.NAMES,
    "model.layers.{i}.post_attention_layernorm": "decoder.layers.{i}.self_attn_sublayer.norm_after",
    "model.layers.{i}.pre_feedforward_layernorm": "decoder.layers.{i}.ffn_sublayer.norm",
    "model.layers.{i}.post_feedforward_layernorm": "decoder.layers.{i}.ffn_sublayer.norm_after",
}
DEFAULTS_2 = {"head_dim": 256, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
# The first release of Gemma has "gelu" in its configuration, but uses the tanh approximation.
ACTIVATIONS = {"gelu": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}


def stack_from_hf(k: Keys) -> StackConfig:
    """The decoder of Gemma and Gemma 2."""
    k.only("use_bidirectional_attention", None, False)
    stack = llama.stack_from_hf(k)
    return replace(
        stack,
        attention_bias="qkvo" if k.flag("attention_bias", default=False) else "",
        norm="rms_shifted",
        embedding_scale=math.sqrt(stack.d_model),
    )


def config_from_hf(values: Mapping[str, Any]) -> NetworkConfig:
    """The configuration from a `config.json`; `UserError` for unsupported keys."""
    k = Keys({"head_dim": 256, **values})
    key = "hidden_activation" if values.get("hidden_activation") else "hidden_act"
    stack = replace(stack_from_hf(k), activation=k.choice(key, table=ACTIVATIONS, default="gelu_pytorch_tanh"))
    return _config("gemma", k, stack, "hidden_act hidden_activation")


def config_from_hf_2(values: Mapping[str, Any]) -> NetworkConfig:
    """The configuration from a `config.json` of Gemma 2; `UserError` for unsupported keys."""
    k = Keys({**DEFAULTS_2, **values})
    stack = stack_2_from_hf(k)
    cap = k.number("final_logit_softcapping", default=0.0, above=0.0)
    return _config("gemma2", k, stack, "hidden_act cache_implementation", cap)


def stack_2_from_hf(k: Keys) -> StackConfig:
    """A stack of Gemma 2 and T5Gemma."""
    stack, window = stack_from_hf(k), k.size("sliding_window", "sliding_window_size", default=4096)
    every_other = ["full_attention" if i % 2 else "sliding_attention" for i in range(stack.n_layers)]
    return replace(
        stack,
        activation=k.choice("hidden_activation", table=ACTIVATIONS, default="gelu_pytorch_tanh"),
        norm_position="sandwich",
        score_scale=k.number("query_pre_attn_scalar", default=256.0, above=0.0) ** -0.5,
        score_cap=k.number("attn_logit_softcapping", default=0.0, above=0.0),
        windows=tuple(
            window if kind == "sliding_attention" else 0 for kind in k.layer_kinds(stack.n_layers, every_other)
        ),
    )


def _config(family: str, k: Keys, stack: StackConfig, ignored: str, cap: float = 0.0) -> NetworkConfig:
    head = k.head(HEADS)
    config = NetworkConfig(
        family,
        vocab_size=k.size("vocab_size"),
        decoder=stack,
        head=head,
        tie_head=k.flag("tie_word_embeddings", default=True) and head == "language",
        logit_cap=cap,
    )
    k.done(ignored=f"max_position_embeddings {ignored}")
    return config


# Trained in bfloat16. Norms with large weights overflow: https://github.com/huggingface/transformers/issues/36822.
FAMILY = Family(
    config_from_hf,
    llama.NAMES,
    prefix="model.",
    heads=HEADS,
    ignored=llama.IGNORED,
    overflows=True,
    traits=Traits("GemmaTokenizer", dropout=FamilyDropout(paper=0.0)),
)
FAMILY_2 = replace(FAMILY, config_from_hf=config_from_hf_2, names=NAMES_2)

"""LLaMA 1 to 3 (arXiv:2302.13971, 2307.09288, 2407.21783): GPT with later improvements.

Changes to the Transformer: RMS pre-norm, a gated feed-forward network with SiLU, rotary positions,
no biases; grouped-query attention from LLaMA 2 on, scaled rotary positions from 3.1 on.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headwise.config.network import NetworkConfig, StackConfig
from headwise.families.family import Family, FamilyDropout, Traits
from headwise.families.keys import ACTIVATIONS_TO_HF, Keys

HEADS = {"LlamaForCausalLM": "language", "LlamaModel": "none"}
NAMES = {  # shared by Mistral, Qwen and Gemma
    "model.embed_tokens": "embeddings.tokens",
    "model.layers.{i}.input_layernorm": "decoder.layers.{i}.self_attn_sublayer.norm",
    "model.layers.{i}.self_attn.q_proj": "decoder.layers.{i}.self_attn.q_proj",
    "model.layers.{i}.self_attn.k_proj": "decoder.layers.{i}.self_attn.k_proj",
    "model.layers.{i}.self_attn.v_proj": "decoder.layers.{i}.self_attn.v_proj",
    "model.layers.{i}.self_attn.o_proj": "decoder.layers.{i}.self_attn.o_proj",
    "model.layers.{i}.post_attention_layernorm": "decoder.layers.{i}.ffn_sublayer.norm",
    "model.layers.{i}.mlp.gate_proj": "decoder.layers.{i}.ffn.gate_proj",
    "model.layers.{i}.mlp.up_proj": "decoder.layers.{i}.ffn.up_proj",
    "model.layers.{i}.mlp.down_proj": "decoder.layers.{i}.ffn.down_proj",
    "model.norm": "decoder.norm",
    "lm_head": "head.output",
}
IGNORED = r"rotary_emb\.inv_freq$"


def stack_from_hf(k: Keys) -> StackConfig:
    """The decoder of LLaMA, Mistral, Qwen and Gemma."""
    d_model, n_heads, d_head = k.heads("hidden_size", "num_attention_heads", "head_dim")
    n_kv_heads = k.size("num_key_value_heads", default=n_heads)
    k.refuse(
        n_heads % n_kv_heads != 0,
        f"num_attention_heads = {n_heads} is not a multiple of num_key_value_heads = {n_kv_heads}",
    )
    return StackConfig(
        d_model=d_model,
        n_layers=k.layers("num_hidden_layers"),
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        d_ff=k.size("intermediate_size"),
        d_head=d_head,
        attention_bias="",
        gated=True,
        ffn_bias=False,
        norm="rms",
        norm_eps=k.fraction("rms_norm_eps", default=1e-6),
        rotary=k.rotary(d_head),
    )


def config_from_hf(values: Mapping[str, Any]) -> NetworkConfig:
    """The configuration from a `config.json`; `UserError` for unsupported keys."""
    k = Keys(values)
    k.only("rope_interleaved", False)
    stack = replace(
        stack_from_hf(k),
        activation=k.activation("hidden_act", "silu"),
        attention_bias="qkvo" if k.flag("attention_bias", default=False) else "",
        ffn_bias=k.flag("mlp_bias", default=False),
    )
    head = k.head(HEADS)
    config = NetworkConfig(
        "llama",
        vocab_size=k.size("vocab_size"),
        decoder=stack,
        head=head,
        tie_head=k.flag("tie_word_embeddings", default=False) and head == "language",
    )
    k.done(ignored="max_position_embeddings pretraining_tp is_llama_config")
    return config


def config_to_hf(config: NetworkConfig) -> dict[str, Any]:
    """The `config.json` of a network, without token ids and maximum length."""
    stack = config.decoder
    assert stack
    rotary = {"rope_theta": stack.rotary.base} if stack.rotary else {}
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": config.vocab_size,
        "hidden_size": stack.d_model,
        "num_hidden_layers": stack.n_layers,
        "num_attention_heads": stack.n_heads,
        "num_key_value_heads": stack.n_kv_heads,
        "head_dim": stack.d_head,
        "intermediate_size": stack.d_ff,
        "hidden_act": ACTIVATIONS_TO_HF.get(stack.activation, stack.activation),
        "attention_bias": bool(stack.attention_bias),
        "mlp_bias": stack.ffn_bias,
        "rms_norm_eps": stack.norm_eps,
        "tie_word_embeddings": config.tie_head,
        **rotary,
    }


FAMILY = Family(
    config_from_hf,
    NAMES,
    prefix="model.",
    heads=HEADS,
    ignored=IGNORED,
    config_to_hf=config_to_hf,
    traits=Traits(dropout=FamilyDropout(paper=0.0)),
)

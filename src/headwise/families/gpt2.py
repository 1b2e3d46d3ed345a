"""GPT-2 (Radford et al. 2019): a decoder without cross-attention.

Changes to the Transformer: pre-norm layers with a final norm, learned positions, GELU.
"""

from collections.abc import Mapping
from typing import Any

from headwise.config.network import NetworkConfig, StackConfig
from headwise.families.family import Family, FamilyDropout, Traits
from headwise.families.keys import ACTIVATIONS_TO_HF, Keys

HEADS = {"GPT2LMHeadModel": "language", "GPT2Model": "language"}
NAMES = {
    "transformer.wte": "embeddings.tokens",
    "transformer.wpe": "embeddings.positions.table",
    "transformer.h.{i}.ln_1": "decoder.layers.{i}.self_attn_sublayer.norm",
    "transformer.h.{i}.attn.c_attn": "^decoder.layers.{i}.self_attn.q_proj"
    "|decoder.layers.{i}.self_attn.k_proj|decoder.layers.{i}.self_attn.v_proj",
    "transformer.h.{i}.attn.c_proj": "^decoder.layers.{i}.self_attn.o_proj",
    "transformer.h.{i}.ln_2": "decoder.layers.{i}.ffn_sublayer.norm",
    "transformer.h.{i}.mlp.c_fc": "^decoder.layers.{i}.ffn.up_proj",
    "transformer.h.{i}.mlp.c_proj": "^decoder.layers.{i}.ffn.down_proj",
    "transformer.ln_f": "decoder.norm",
    "lm_head": "head.output",
}


def config_from_hf(values: Mapping[str, Any]) -> NetworkConfig:
    """The configuration from a `config.json`; `UserError` for unsupported keys."""
    k = Keys(values)
    k.only("add_cross_attention", False)
    k.only("is_decoder", False)
    return network_from_hf(k)


def network_from_hf(k: Keys) -> NetworkConfig:
    """The configuration from keys; the caller has checked those for cross-attention."""
    k.only("scale_attn_by_inverse_layer_idx", False)
    d_model, n_heads, d_head = k.heads("n_embd", "n_head")
    stack = StackConfig(
        d_model=d_model,
        n_layers=k.layers("n_layer"),
        n_heads=n_heads,
        d_ff=k.size("n_inner", default=4 * d_model),
        d_head=d_head,
        score_scale=0.0 if k.flag("scale_attn_weights", default=True) else 1.0,
        activation=k.activation("activation_function", "gelu_new"),
        norm_eps=k.fraction("layer_norm_epsilon", default=1e-5),
        positions="learned",
        max_len=k.size("n_positions", "n_ctx", default=1024),
    )
    config = NetworkConfig(
        "gpt2",
        vocab_size=k.size("vocab_size"),
        decoder=stack,
        head=k.head(HEADS),
        tie_head=k.flag("tie_word_embeddings", default=True),
    )
    k.done(ignored="reorder_and_upcast_attn attn_pdrop embd_pdrop resid_pdrop n_special predict_special_tokens")
    return config


def config_to_hf(config: NetworkConfig) -> dict[str, Any]:
    """The `config.json` of a network, without token ids and without attention dropout."""
    stack = config.decoder
    assert stack
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": config.vocab_size,
        "n_embd": stack.d_model,
        "n_layer": stack.n_layers,
        "n_head": stack.n_heads,
        "n_inner": stack.d_ff,
        "n_positions": stack.max_len,
        "activation_function": ACTIVATIONS_TO_HF.get(stack.activation, stack.activation),
        "layer_norm_epsilon": stack.norm_eps,
        "tie_word_embeddings": config.tie_head,
        "embd_pdrop": stack.dropout,
        "resid_pdrop": stack.dropout,
        "attn_pdrop": 0.0,
    }


DROPOUT = FamilyDropout(more={"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1})
FAMILY = Family(
    config_from_hf,
    NAMES,
    prefix="transformer.",
    ignored=r"attn\.(masked_)?bias$",
    config_to_hf=config_to_hf,
    traits=Traits("GPT2Tokenizer", dropout=DROPOUT),
)

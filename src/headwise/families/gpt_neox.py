"""GPT-NeoX (arXiv:2204.06745), Pythia: GPT with parallel sub-layers and partial rotary positions."""

from collections.abc import Mapping
from typing import Any

from headwise.config.network import NetworkConfig, StackConfig
from headwise.families.family import Family, FamilyDropout, Traits
from headwise.families.keys import Keys

HEADS = {"GPTNeoXForCausalLM": "language", "GPTNeoXModel": "none"}
_LAYER, _OURS = "gpt_neox.layers.{i}.", "decoder.layers.{i}."
NAMES = {
    "gpt_neox.embed_in": "embeddings.tokens",
    f"{_LAYER}input_layernorm": f"{_OURS}self_attn_sublayer.norm",
    f"{_LAYER}attention.query_key_value": f"%{_OURS}self_attn.q_proj|{_OURS}self_attn.k_proj|{_OURS}self_attn.v_proj",
    f"{_LAYER}attention.dense": f"{_OURS}self_attn.o_proj",
    f"{_LAYER}post_attention_layernorm": f"{_OURS}ffn_sublayer.norm",
    f"{_LAYER}mlp.dense_h_to_4h": f"{_OURS}ffn.up_proj",
    f"{_LAYER}mlp.dense_4h_to_h": f"{_OURS}ffn.down_proj",
    "gpt_neox.final_layer_norm": "decoder.norm",
    "embed_out": "head.output",
}


def config_from_hf(values: Mapping[str, Any]) -> NetworkConfig:
    """The configuration from a `config.json`; `UserError` for unsupported keys."""
    k = Keys(values)
    k.only("is_decoder", False)
    d_model, n_heads, d_head = k.heads("hidden_size", "num_attention_heads")
    stack = StackConfig(
        d_model=d_model,
        n_layers=k.layers("num_hidden_layers"),
        n_heads=n_heads,
        d_ff=k.size("intermediate_size"),
        d_head=d_head,
        attention_bias="qkvo" if k.flag("attention_bias", default=True) else "",
        activation=k.activation("hidden_act", "gelu"),
        norm_eps=k.fraction("layer_norm_eps", default=1e-5),
        parallel="two_norms" if k.flag("use_parallel_residual", default=True) else "no",
        rotary=k.rotary(d_head, part=0.25),
    )
    head = k.head(HEADS)
    config = NetworkConfig(
        "gpt_neox",
        vocab_size=k.size("vocab_size"),
        decoder=stack,
        head=head,
        tie_head=k.flag("tie_word_embeddings", default=False) and head == "language",
    )
    k.done(ignored="max_position_embeddings")
    return config


FAMILY = Family(
    config_from_hf,
    NAMES,
    prefix="gpt_neox.",
    heads=HEADS,
    ignored=r"attention\.(masked_)?bias$|rotary_emb\.inv_freq$",
    traits=Traits("GPTNeoXTokenizer", dropout=FamilyDropout(paper=0.0)),
)

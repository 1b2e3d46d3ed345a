"""ModernBERT (arXiv:2412.13663): BERT with the parts of later decoders.

Changes to BERT: pre-norm without biases, a gated feed-forward network, rotary positions, and a sliding window on both
sides in two of three layers, whose rotary positions turn faster. The embeddings are normalised, so the first attention
is not. Padding is masked here; `transformers` can leave it out of the computation, with the same result.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headwise.config.network import NetworkConfig, RotaryConfig, StackConfig
from headwise.families import bert
from headwise.families.family import Family, FamilyDropout, Traits
from headwise.families.keys import Keys

HEADS = {
    "ModernBertForMaskedLM": "masked",
    "ModernBertModel": "none",
    "ModernBertForSequenceClassification": "text_class",
    "ModernBertForTokenClassification": "token_class",
    "ModernBertForQuestionAnswering": "span",
}
_LAYER, _OURS = "model.layers.{i}.", "encoder.layers.{i}."
NAMES = {
    "model.embeddings.tok_embeddings": "embeddings.tokens",
    "model.embeddings.norm": "embeddings.norm",
    f"{_LAYER}attn_norm": f"{_OURS}self_attn_sublayer.norm",
    f"{_LAYER}attn.Wqkv": f"{_OURS}self_attn.q_proj|{_OURS}self_attn.k_proj|{_OURS}self_attn.v_proj",
    f"{_LAYER}attn.Wo": f"{_OURS}self_attn.o_proj",
    f"{_LAYER}mlp_norm": f"{_OURS}ffn_sublayer.norm",
    f"{_LAYER}mlp.Wi": f"{_OURS}ffn.gate_proj|{_OURS}ffn.up_proj",
    f"{_LAYER}mlp.Wo": f"{_OURS}ffn.down_proj",
    "model.final_norm": "encoder.norm",
}
POOLINGS = {"cls": "first", "mean": "mean"}


def head_names(config: NetworkConfig) -> dict[str, str]:
    """The names of the network's head."""
    if config.head == "none":
        return {}
    dense = "head.pool" if config.head == "text_class" else "head.dense"
    output = (
        bert.output_names(config, "decoder.bias", "decoder")
        if config.head == "masked"
        else {"classifier": "head.classes"}
    )
    return {"head.dense": dense, "head.norm": "head.norm", **output}


def _rotary(k: Keys, kind: str, base: str, default: float, d_head: int) -> RotaryConfig:
    """Rotary positions of one kind of layers, from `rope_parameters` or, in older files, a key of its own."""
    theta = k.number(base, default=default, above=0.0)
    own = Keys(k.table("rope_parameters"), "rope_parameters.").table(kind)
    return Keys({"rope_theta": theta, "rope_parameters": own}).rotary(d_head)


def stack_from_hf(k: Keys) -> StackConfig:
    """The encoder."""
    d_model, n_heads, d_head = k.heads("hidden_size", "num_attention_heads")
    n_layers, window = k.layers("num_hidden_layers"), k.size("local_attention", default=128) // 2 + 1
    every = k.size("global_attn_every_n_layers", default=3)
    default = ["sliding_attention" if i % every else "full_attention" for i in range(n_layers)]
    return StackConfig(
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        d_ff=k.size("intermediate_size"),
        d_head=d_head,
        attention_bias="qkvo" if k.flag("attention_bias", default=False) else "",
        windows=tuple(window if kind == "sliding_attention" else 0 for kind in k.layer_kinds(n_layers, default)),
        activation=k.activation("hidden_activation", "gelu"),
        gated=True,
        ffn_bias=k.flag("mlp_bias", default=False),
        norm="layer" if k.flag("norm_bias", default=False) else "layer_unbiased",
        norm_eps=k.fraction("norm_eps", default=1e-5),
        rotary=_rotary(k, "full_attention", "global_rope_theta", 160_000.0, d_head),
        embedding_norm=True,
        window_rotary=_rotary(k, "sliding_attention", "local_rope_theta", 10_000.0, d_head),
        first_norm=False,
    )


def config_from_hf(values: Mapping[str, Any]) -> NetworkConfig:
    """The configuration from a `config.json`; `UserError` for unsupported keys."""
    k = Keys(values)
    k.only("is_decoder", False)
    k.only("decoder_bias", True)
    stack, head = stack_from_hf(k), k.head(HEADS)
    config = replace(
        bert.config_of_encoder("modernbert", k, stack, head, k.activation("classifier_activation", "gelu")),
        pooling=k.choice("classifier_pooling", table=POOLINGS, default="cls") if head == "text_class" else "first",
        head_norm=head in ("text_class", "token_class", "span"),
        head_dense_bias=k.flag("classifier_bias", default=False) or head == "none",
    )
    k.done(
        ignored="max_position_embeddings initializer_cutoff_factor deterministic_flash_attn sparse_prediction "
        "sparse_pred_ignore_index reference_compile repad_logits_with_grad embedding_dropout mlp_dropout "
        "layer_norm_eps position_embedding_type classifier_pooling"
    )
    return config


HEAD_DROPOUT = ("classifier_dropout", None)
DROPOUT = FamilyDropout(
    paper=0.0,
    heads={"text_class": HEAD_DROPOUT, "token_class": HEAD_DROPOUT, "span": ("classifier_dropout", 0.0)},
)
FAMILY = Family(
    config_from_hf,
    NAMES,
    head_names,
    prefix="model.",
    heads=HEADS,
    traits=Traits("", misnames_tokenizer=True, head_classes="ModernBert", dropout=DROPOUT),
)

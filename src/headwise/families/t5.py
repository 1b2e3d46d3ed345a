"""T5 v1.0 (arXiv:1910.10683) and v1.1: an encoder-decoder with relative positions.

Changes to the Transformer: RMS pre-norm, no biases, unscaled scores with a trained bias for each range of distances; in
v1.1 a gated feed-forward network and an untied head.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headwise.config.network import NetworkConfig, StackConfig
from headwise.families.family import Family, Traits
from headwise.families.keys import WIDEST, Keys

HEADS = {
    "T5ForConditionalGeneration": "language",
    "T5WithLMHeadModel": "language",
    "T5Model": "language",
    "T5EncoderModel": "none",
    "MT5ForConditionalGeneration": "language",
    "MT5EncoderModel": "none",
}
FFN = {"encoder": 1, "decoder": 2}  # index of the feed-forward sub-layer in a block


def _stack_names(stack: str) -> dict[str, str]:
    layer, ours, ffn = f"{stack}.block.{{i}}.layer.", f"{stack}.layers.{{i}}.", FFN[stack]
    return {
        f"{layer}0.layer_norm": f"{ours}self_attn_sublayer.norm",
        f"{layer}0.SelfAttention.q": f"{ours}self_attn.q_proj",
        f"{layer}0.SelfAttention.k": f"{ours}self_attn.k_proj",
        f"{layer}0.SelfAttention.v": f"{ours}self_attn.v_proj",
        f"{layer}0.SelfAttention.o": f"{ours}self_attn.o_proj",
        f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias": f"{stack}.reach.buckets",
        f"{layer}{ffn}.layer_norm": f"{ours}ffn_sublayer.norm",
        f"{layer}{ffn}.DenseReluDense.wo": f"{ours}ffn.down_proj",
        f"{stack}.final_layer_norm": f"{stack}.norm",
    }


def _more_names(config: NetworkConfig) -> dict[str, str]:
    """Names of the feed-forward network, gated or not, and of shared or separate embeddings."""
    assert config.encoder
    shared = {"shared": "src_embeddings.tokens" if config.decoder else "embeddings.tokens"}
    own = {"encoder.embed_tokens": "src_embeddings.tokens", "decoder.embed_tokens": "tgt_embeddings.tokens"}
    ours = {"wi_0": "gate_proj", "wi_1": "up_proj"} if config.encoder.gated else {"wi": "up_proj"}
    return (shared if config.share_embeddings else own) | {
        f"{stack}.block.{{i}}.layer.{ffn}.DenseReluDense.{key}": f"{stack}.layers.{{i}}.ffn.{name}"
        for stack, ffn in FFN.items()
        for key, name in ours.items()
    }


NAMES = {
    **_stack_names("encoder"),
    **_stack_names("decoder"),
    "decoder.block.{i}.layer.1.layer_norm": "decoder.layers.{i}.cross_attn_sublayer.norm",
    "decoder.block.{i}.layer.1.EncDecAttention.q": "decoder.layers.{i}.cross_attn.q_proj",
    "decoder.block.{i}.layer.1.EncDecAttention.k": "decoder.layers.{i}.cross_attn.k_proj",
    "decoder.block.{i}.layer.1.EncDecAttention.v": "decoder.layers.{i}.cross_attn.v_proj",
    "decoder.block.{i}.layer.1.EncDecAttention.o": "decoder.layers.{i}.cross_attn.o_proj",
    "lm_head": "head.output",
}


def config_from_hf(values: Mapping[str, Any]) -> NetworkConfig:
    """The configuration from a `config.json`; `UserError` for unsupported keys."""
    k = Keys(values)
    # v1.1 has tie_word_embeddings = false and no scaling; newer files have a key for scaling.
    scaled = k.flag("scale_decoder_outputs", default=values.get("tie_word_embeddings") is not False)
    return network_from_hf("t5", k, scaled)


def network_from_hf(family: str, k: Keys, scaled: bool) -> NetworkConfig:
    """The configuration of T5 and mT5; `scaled`: hidden states are scaled before the head.

    The head is tied if the file has no matrix for it (see `pytorch.checkpoint.published`).
    """
    kind = k.word("feed_forward_proj", default="relu")
    gated, activation = kind.startswith("gated-"), kind.removeprefix("gated-")
    if kind == "gated-gelu":
        activation = "gelu_new"  # as in the training of T5 v1.1
    buckets = k.size("relative_attention_num_buckets", default=32, least=4)
    distance = k.size("relative_attention_max_distance", default=128)
    k.refuse(
        distance <= buckets // 2, f"relative_attention_max_distance = {distance} is too small for {buckets} buckets"
    )
    stack = StackConfig(
        d_model=k.size("d_model", most=WIDEST),
        n_layers=k.layers("num_layers"),
        n_heads=k.size("num_heads", most=WIDEST),
        d_ff=k.size("d_ff"),
        d_head=k.size("d_kv", most=WIDEST),
        attention_bias="",
        score_scale=1.0,
        activation=Keys({"feed_forward_proj": activation}).activation("feed_forward_proj", "relu"),
        gated=gated,
        ffn_bias=False,
        norm="rms",
        norm_eps=k.fraction("layer_norm_epsilon", default=1e-6),
        relative_buckets=buckets,
        relative_distance=distance,
    )
    decoder = replace(stack, n_layers=k.layers("num_decoder_layers", default=stack.n_layers))
    head = k.head(HEADS)
    config = NetworkConfig(
        family,
        vocab_size=k.size("vocab_size"),
        encoder=stack,
        decoder=decoder if head == "language" else None,
        head=head,
        tie_head=head == "language",
        logit_scale=stack.d_model**-0.5 if scaled else 1.0,
    )
    k.only("is_decoder", False)
    k.done(ignored="dense_act_fn is_gated_act tie_word_embeddings n_positions max_position_embeddings")
    return config


FAMILY = Family(
    config_from_hf,
    NAMES,
    _more_names,
    # Early files have an unused relative bias for cross-attention.
    ignored=r"EncDecAttention\.relative_attention_bias\.weight$|^shared\.weight$",
    same={"encoder.embed_tokens.weight": "shared.weight", "decoder.embed_tokens.weight": "shared.weight"},
    overflows=True,  # trained in bfloat16; transformers keeps the last matrix of a feed-forward network in float32,
    traits=Traits("T5Tokenizer", summarizes=True, restores="spans"),
)

"""BART (arXiv:1910.13461): the paper's Transformer with changes from BERT, trained as a denoising autoencoder.

Changes to the Transformer: learned positions starting at row 2, a norm after the sum of embeddings, GELU.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headwise.config.network import NetworkConfig, StackConfig
from headwise.families.family import Family, Traits
from headwise.families.keys import ACTIVATIONS_TO_HF, Keys

HEADS = {"BartForConditionalGeneration": "language", "BartModel": "language"}
LAYER = {  # of both stacks, also in mBART, Marian, M2M-100 and Whisper
    "self_attn.q_proj": "self_attn.q_proj",
    "self_attn.k_proj": "self_attn.k_proj",
    "self_attn.v_proj": "self_attn.v_proj",
    "self_attn.out_proj": "self_attn.o_proj",
    "self_attn_layer_norm": "self_attn_sublayer.norm",
    "fc1": "ffn.up_proj",
    "fc2": "ffn.down_proj",
    "final_layer_norm": "ffn_sublayer.norm",
}
CROSS = {
    "encoder_attn.q_proj": "cross_attn.q_proj",
    "encoder_attn.k_proj": "cross_attn.k_proj",
    "encoder_attn.v_proj": "cross_attn.v_proj",
    "encoder_attn.out_proj": "cross_attn.o_proj",
    "encoder_attn_layer_norm": "cross_attn_sublayer.norm",
}
STACKS = {
    **{f"model.encoder.layers.{{i}}.{key}": f"encoder.layers.{{i}}.{name}" for key, name in LAYER.items()},
    **{f"model.decoder.layers.{{i}}.{key}": f"decoder.layers.{{i}}.{name}" for key, name in (LAYER | CROSS).items()},
    "model.encoder.layer_norm": "encoder.norm",  # of pre-norm models
    "model.decoder.layer_norm": "decoder.norm",
}
NAMES = {
    **STACKS,
    "model.encoder.embed_positions": "src_embeddings.positions.table",
    "model.decoder.embed_positions": "tgt_embeddings.positions.table",
    "model.encoder.layernorm_embedding": "src_embeddings.norm",
    "model.decoder.layernorm_embedding": "tgt_embeddings.norm",
    "final_logits_bias": "+head.output.bias",
    "lm_head.weight": "head.output.weight",
}
SAME = {f"model.{stack}.embed_tokens.weight": "model.shared.weight" for stack in ("encoder", "decoder")}
IGNORED = r"^model\.shared\.weight$"  # with separate embeddings of both stacks


def embedding_names(config: NetworkConfig) -> dict[str, str]:
    """Names of shared or separate embeddings."""
    if config.share_embeddings:
        return {"model.shared": "src_embeddings.tokens"}
    return {
        "model.encoder.embed_tokens": "src_embeddings.tokens",
        "model.decoder.embed_tokens": "tgt_embeddings.tokens",
    }


# Keys of older files that are redundant.
OLD = "num_hidden_layers add_bias_logits extra_pos_embeddings static_position_embeddings normalize_embedding"


def stack_from_hf(k: Keys, side: str) -> StackConfig:
    """The "encoder" or "decoder" stack of BART, mBART, Marian, M2M-100 and Whisper."""
    d_model, n_heads, d_head = k.heads("d_model", f"{side}_attention_heads")
    return StackConfig(
        d_model=d_model,
        n_layers=k.layers(f"{side}_layers"),
        n_heads=n_heads,
        d_ff=k.size(f"{side}_ffn_dim"),
        d_head=d_head,
        activation=k.activation("activation_function", "gelu"),
        embedding_scale=d_model**0.5 if k.flag("scale_embedding", default=False) else 1.0,
    )


def stack_to_hf(stack: StackConfig, side: str) -> dict[str, Any]:
    """The keys that `stack_from_hf` reads, and dropout."""
    return {
        "d_model": stack.d_model,
        f"{side}_layers": stack.n_layers,
        f"{side}_attention_heads": stack.n_heads,
        f"{side}_ffn_dim": stack.d_ff,
        "activation_function": ACTIVATIONS_TO_HF.get(stack.activation, stack.activation),
        "scale_embedding": stack.embedding_scale != 1.0,
        "max_position_embeddings": stack.max_len,
        "dropout": stack.dropout,
    }


def network_to_hf(config: NetworkConfig, heads: Mapping[str, str]) -> dict[str, Any]:
    """The config.json entries of any encoder-decoder of this kind."""
    assert config.encoder and config.decoder
    return {
        "model_type": config.family,
        "architectures": [next(name for name, head in heads.items() if head == config.head)],
        "vocab_size": config.vocab_size,
        **stack_to_hf(config.encoder, "encoder"),
        **stack_to_hf(config.decoder, "decoder"),
        "tie_word_embeddings": config.tie_head,
        "is_encoder_decoder": True,
    }


def config_from_hf(values: Mapping[str, Any]) -> NetworkConfig:
    """The configuration from a `config.json`; `UserError` for unsupported keys."""
    k = Keys(values)
    k.only("normalize_before", False)
    k.only("add_final_layer_norm", False)
    k.only("do_blenderbot_90_layernorm", False)
    return network_from_hf("bart", k, HEADS, norm_position="post")


def network_from_hf(family: str, k: Keys, heads: Mapping[str, str], norm_position: str) -> NetworkConfig:
    """The configuration of BART and mBART."""
    max_len = k.size("max_position_embeddings", default=1024)
    encoder, decoder = (
        replace(
            stack_from_hf(k, side),
            norm_position=norm_position,
            positions="learned",
            max_len=max_len,
            position_offset=2,
            embedding_norm=True,
        )
        for side in ("encoder", "decoder")
    )
    config = NetworkConfig(
        family,
        vocab_size=k.size("vocab_size"),
        encoder=encoder,
        decoder=decoder,
        head=k.head(heads),
        head_bias=True,
        tie_head=k.flag("tie_word_embeddings", default=True),
    )
    k.only("is_decoder", False)
    k.done(ignored=OLD)
    return config


FAMILY = Family(
    config_from_hf,
    NAMES,
    embedding_names,
    prefix="model.",
    ignored=IGNORED,
    same=SAME,
    traits=Traits("RobertaTokenizer", summarizes=True, restores="texts"),
)

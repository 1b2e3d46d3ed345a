"""T5Gemma (arXiv:2504.06225): an encoder-decoder of two Gemma 2.

The encoder's attention is bidirectional, and its windows have two sides. Both stacks have their own embeddings and may
differ in width; cross-attention then reads the wider or narrower states.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headwise.config.network import NetworkConfig, StackConfig
from headwise.families import gemma
from headwise.families.family import Family, Traits
from headwise.families.keys import Keys

HEADS = {"T5GemmaForConditionalGeneration": "language"}
IGNORED = "max_position_embeddings hidden_act cache_implementation classifier_dropout_rate"
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")


def _stack_names(stack: str, side: str) -> dict[str, str]:
    theirs, ours = f"model.{stack}.layers.{{i}}.", f"{stack}.layers.{{i}}."
    attentions = ("self_attn", "cross_attn") if stack == "decoder" else ("self_attn",)
    sublayers = {**{name: name for name in attentions}, "feedforward": "ffn"}
    return {
        f"model.{stack}.embed_tokens": f"{side}_embeddings.tokens",
        f"model.{stack}.norm": f"{stack}.norm",
        **{f"{theirs}{name}.{part}": f"{ours}{name}.{part}" for name in attentions for part in PROJECTIONS},
        **{f"{theirs}mlp.{part}": f"{ours}ffn.{part}" for part in ("gate_proj", "up_proj", "down_proj")},
        **{f"{theirs}pre_{key}_layernorm": f"{ours}{name}_sublayer.norm" for key, name in sublayers.items()},
        **{f"{theirs}post_{key}_layernorm": f"{ours}{name}_sublayer.norm_after" for key, name in sublayers.items()},
    }


NAMES = {
    **_stack_names("encoder", "src"),
    **_stack_names("decoder", "tgt"),
    "lm_head.out_proj": "head.output",
}


def config_from_hf(values: Mapping[str, Any]) -> NetworkConfig:
    """The configuration from a `config.json`; `UserError` for unsupported keys."""
    k = Keys(values)
    k.only("is_encoder_decoder", True)
    inner = {side: Keys({**gemma.DEFAULTS_2, **k.table(side)}, f"{side}.") for side in ("encoder", "decoder")}
    encoder, decoder = (gemma.stack_2_from_hf(inner[side]) for side in ("encoder", "decoder"))
    size = k.size("vocab_size", default=256_000)
    src_size, tgt_size = (inner[side].size("vocab_size", default=size) for side in ("encoder", "decoder"))
    cap = inner["decoder"].number("final_logit_softcapping", default=0.0, above=0.0)
    inner["encoder"].number("final_logit_softcapping", default=0.0, above=0.0)  # not used
    width = inner["decoder"].size("cross_attention_hidden_size", default=encoder.d_model)
    k.refuse(width != encoder.d_model, f"decoder.cross_attention_hidden_size = {width} is not {encoder.d_model}")
    for side in inner.values():
        side.done(ignored=f"{IGNORED} is_decoder tie_word_embeddings model_type")
    config = NetworkConfig(
        "t5gemma",
        vocab_size=src_size,
        encoder=_two_sided(encoder),
        decoder=replace(decoder, d_memory=0 if encoder.d_model == decoder.d_model else encoder.d_model),
        head=k.head(HEADS),
        share_embeddings=False,
        tgt_vocab_size=0 if src_size == tgt_size else tgt_size,
        tie_head=k.flag("tie_word_embeddings", default=True),
        logit_cap=cap,
    )
    k.done(ignored=IGNORED)
    return config


def _two_sided(stack: StackConfig) -> StackConfig:
    """The encoder, whose windows include the positions at a distance of `sliding_window`; those of decoders do not."""
    return replace(stack, windows=tuple(window + 1 if window else 0 for window in stack.windows))


FAMILY = Family(
    config_from_hf,
    NAMES,
    prefix="model.",
    heads=HEADS,
    ignored=r"rotary_emb\.inv_freq$",
    overflows=True,
    traits=Traits("GemmaTokenizer"),
)

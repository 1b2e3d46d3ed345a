"""Image captioning (`vision-encoder-decoder`): a ViT or DeiT encoder and a GPT-2 decoder.

New are the cross-attention between GPT-2's two sub-layers, and a projection if the widths differ. Other encoders and
decoders are refused.
"""

from collections.abc import Mapping
from typing import Any

from headwise.config.network import NetworkConfig, StackConfig
from headwise.families import deit, gpt2, vit
from headwise.families.family import Family
from headwise.families.keys import Keys

CROSS = {
    "ln_cross_attn": "cross_attn_sublayer.norm",
    "crossattention.q_attn": "^cross_attn.q_proj",
    "crossattention.c_attn": "^cross_attn.k_proj|cross_attn.v_proj",
    "crossattention.c_proj": "^cross_attn.o_proj",
}


def _names() -> dict[str, str]:
    encoder = {**vit.names("encoder"), **deit.distilled("encoder")}
    layer = "decoder.layers.{i}.cross_attn"
    return {
        **{key: ours.replace("embeddings.", "src_embeddings.") for key, ours in encoder.items()},
        **{f"decoder.{key}": ours.replace("embeddings.", "tgt_embeddings.") for key, ours in gpt2.NAMES.items()},
        **{f"decoder.transformer.h.{{i}}.{key}": ours.replace("cross_attn", layer) for key, ours in CROSS.items()},
        "enc_to_dec_proj": "encoder.project",
    }


def config_from_hf(values: Mapping[str, Any]) -> NetworkConfig:
    """The configuration from a `config.json`; `UserError` for unsupported keys."""
    k = Keys(values)
    vision, text = _encoder(k.table("encoder")), _decoder(k.table("decoder"))
    encoder, decoder = vision.encoder, text.decoder
    assert encoder and decoder
    _refuse_other_width(Keys(k.table("decoder"), "decoder."), encoder, decoder)
    k.done(ignored="tie_word_embeddings vocab_size processor_class")
    return NetworkConfig(
        "vision-encoder-decoder",
        vocab_size=text.vocab_size,
        encoder=encoder,
        decoder=decoder,
        front="patches",
        image_size=vision.image_size,
        patch_size=vision.patch_size,
        n_channels=vision.n_channels,
        n_prefix=vision.n_prefix,
        tie_head=text.tie_head,
    )


def _encoder(values: Mapping[str, Any]) -> NetworkConfig:
    """The encoder without its original head."""
    k = Keys({**values, "architectures": None}, "encoder.")
    family = k.choice("model_type", table={"vit": "vit", "deit": "deit"}, default="vit")
    k.only("is_decoder", False)
    k.only("add_cross_attention", False)
    return vit.network_from_hf(family, k, {"": "none"}, n_prefix=2 if family == "deit" else 1)


def _decoder(values: Mapping[str, Any]) -> NetworkConfig:
    """The decoder with a language model head."""
    k = Keys({**values, "architectures": None}, "decoder.")
    k.only("model_type", "gpt2")
    k.flag("is_decoder", default=True)
    k.refuse(
        not k.flag("add_cross_attention", default=False),
        "add_cross_attention must be true",
    )
    return gpt2.network_from_hf(k)


def _refuse_other_width(k: Keys, encoder: StackConfig, decoder: StackConfig) -> None:
    """Refuse a cross-attention width other than that of encoder and decoder."""
    width = k.size("cross_attention_hidden_size", default=0, least=0)
    k.refuse(
        width > 0 and not width == encoder.d_model == decoder.d_model,
        f"cross_attention_hidden_size = {width} is not the width of both, {encoder.d_model} and {decoder.d_model}; "
        "write null to use a projection instead",
    )


FAMILY = Family(
    config_from_hf, _names(), ignored=r"^encoder\.pooler\.|mask_token$|\.(attn|crossattention)\.(masked_)?bias$"
)

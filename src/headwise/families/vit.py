"""ViT (arXiv:2010.11929): an encoder whose tokens are patches of an image.

Changes to the Transformer: pre-norm layers with a final norm, learned positions, GELU, a class
token before the patches, whose last state is classified.
"""

from collections.abc import Mapping
from typing import Any

from headwise.config.network import NetworkConfig, StackConfig
from headwise.families.family import Family, FamilyDropout, Traits
from headwise.families.keys import ACTIVATIONS_TO_HF, Keys

HEADS = {"ViTForImageClassification": "image_class", "ViTModel": "none"}


def names(network: str) -> dict[str, str]:
    """The names of ViT and DeiT, with the network's prefix."""
    layer, ours = f"{network}.encoder.layer.{{i}}.", "encoder.layers.{i}."
    return {
        f"{network}.embeddings.cls_token": "+embeddings.prefix.0",
        f"{network}.embeddings.position_embeddings": "+embeddings.positions",
        f"{network}.embeddings.patch_embeddings.projection": "embeddings.patches",
        f"{layer}layernorm_before": f"{ours}self_attn_sublayer.norm",
        f"{layer}attention.attention.query": f"{ours}self_attn.q_proj",
        f"{layer}attention.attention.key": f"{ours}self_attn.k_proj",
        f"{layer}attention.attention.value": f"{ours}self_attn.v_proj",
        f"{layer}attention.output.dense": f"{ours}self_attn.o_proj",
        f"{layer}layernorm_after": f"{ours}ffn_sublayer.norm",
        f"{layer}intermediate.dense": f"{ours}ffn.up_proj",
        f"{layer}output.dense": f"{ours}ffn.down_proj",
        f"{network}.layernorm": "encoder.norm",
    }


NAMES = {**names("vit"), "classifier": "head.outputs.0"}


def config_from_hf(values: Mapping[str, Any]) -> NetworkConfig:
    """The configuration from a `config.json`; `UserError` for unsupported keys."""
    return network_from_hf("vit", Keys(values), HEADS, n_prefix=1)


def network_from_hf(family: str, k: Keys, heads: Mapping[str, str], n_prefix: int) -> NetworkConfig:
    """The configuration of ViT and DeiT; `n_prefix` special tokens precede the patches."""
    (d_model, n_heads, d_head), head = k.heads("hidden_size", "num_attention_heads"), k.head(heads)
    stack = StackConfig(
        d_model=d_model,
        n_layers=k.layers("num_hidden_layers"),
        n_heads=n_heads,
        d_ff=k.size("intermediate_size"),
        d_head=d_head,
        attention_bias="qkvo" if k.flag("qkv_bias", default=True) else "o",
        activation=k.activation("hidden_act", "gelu"),
        norm_eps=k.fraction("layer_norm_eps", default=1e-12),
    )
    size, patch = k.sides("image_size", default=224), k.size("patch_size", default=16)
    k.refuse(patch > min(size), f"patch_size = {patch} is larger than an image of image_size = {size}")
    config = NetworkConfig(
        family,
        encoder=stack,
        front="patches",
        image_size=size,
        patch_size=patch,
        n_channels=k.size("num_channels", default=3),
        n_prefix=n_prefix,
        head=head,
        n_classes=k.n_classes() if head != "none" else 0,
        tie_head=False,
    )
    k.done(ignored="encoder_stride tie_word_embeddings")
    return config


def config_to_hf(config: NetworkConfig) -> dict[str, Any]:
    """The `config.json` of a network, without names of classes and without attention dropout."""
    stack = config.encoder
    assert stack
    return {
        "model_type": "vit",
        "architectures": [name for name, head in HEADS.items() if head == config.head],
        "hidden_size": stack.d_model,
        "num_hidden_layers": stack.n_layers,
        "num_attention_heads": stack.n_heads,
        "intermediate_size": stack.d_ff,
        "hidden_act": ACTIVATIONS_TO_HF.get(stack.activation, stack.activation),
        "layer_norm_eps": stack.norm_eps,
        "qkv_bias": "q" in stack.attention_bias,
        "image_size": list(config.image_size) if len({*config.image_size}) > 1 else config.image_size[0],
        "patch_size": config.patch_size,
        "num_channels": config.n_channels,
        **({"id2label": {str(i): str(i) for i in range(config.n_classes)}} if config.n_classes else {}),
        "hidden_dropout_prob": stack.dropout,
        "attention_probs_dropout_prob": 0.0,
    }


FAMILY = Family(
    config_from_hf,
    NAMES,
    prefix="vit.",
    heads=HEADS,
    ignored=r"^vit\.pooler\.|mask_token$",
    config_to_hf=config_to_hf,
    traits=Traits(head_classes="ViT", dropout=FamilyDropout(paper=0.0)),
)

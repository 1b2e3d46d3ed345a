"""A recipe's [model] of a network for pictures as the axes of ViT, in whose layout it is kept."""

from dataclasses import replace

from headwise.config.model import TransformerConfig
from headwise.errors import UserError
from headwise.network.config import NetworkConfig
from headwise.network.from_recipe import stack_config

CHANNELS = 3  # red, green, blue


def picture_axes(c: TransformerConfig) -> NetworkConfig:
    """The axes of an encoder of patches; `UserError` for what a network of patches is not asked for."""
    if c.positions != "learned":
        raise UserError(f"model.positions = {c.positions}: patches have learned positions; set model.positions=learned")
    encoder = replace(
        stack_config(c, c.n_encoder_layers, c.encoder_heads),
        d_v=0 if c.d_v in (0, c.d_k or c.d_model // c.n_heads) else c.d_v,
        norm_eps=1e-12,
        positions="none",
        max_len=0,
        embedding_scale=1.0,
    )
    return NetworkConfig(
        "vit",
        encoder=encoder,
        front="patches",
        image_size=(c.image_size, c.image_size),
        patch_size=c.patch_size,
        n_channels=CHANNELS,
        n_prefix=1,
        head="image_class",
        n_classes=c.n_outputs,
        tie_head=False,
    )

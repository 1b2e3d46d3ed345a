"""Converts a recipe's [model] to the configuration of a network that is saved in a Hugging Face layout.

Decoders become GPT-2 (learned positions) or LLaMA (rotary positions), masked language models BERT, replaced token
detection ELECTRA, and networks for images ViT. Embeddings are not scaled, as in these models.
"""

from dataclasses import replace

from headwise.config.from_recipe import stack_config
from headwise.config.model import TransformerConfig
from headwise.config.network import NetworkConfig
from headwise.errors import UserError

FAMILY_OF = {"learned": "gpt2", "rotary": "llama"}  # by model.positions
NARROWER = 4  # ELECTRA: width of the discriminator / width of the generator (arXiv:2003.10555, section 3.2: 2 to 4)
CHANNELS = 3  # red, green, blue


def language_model_config(c: TransformerConfig, length: int) -> NetworkConfig:
    """GPT-2 or LLaMA for texts of up to `length` tokens."""
    family = FAMILY_OF.get(c.positions, "llama")
    decoder = replace(
        stack_config(c, c.n_decoder_layers),
        d_v=0 if c.d_v in (0, c.d_k or c.d_model // c.n_heads) else c.d_v,
        n_kv_heads=(c.n_kv_heads or c.n_heads) if family == "llama" else c.n_kv_heads,
        max_len=length if family == "gpt2" else 0,
        embedding_scale=1.0,
    )
    return NetworkConfig(family, vocab_size=c.vocab_size, decoder=decoder, tie_head=c.tied_embeddings != "none")


def masked_lm_config(c: TransformerConfig, length: int) -> NetworkConfig:
    """BERT for texts of up to `length` tokens, with a masked language modelling head."""
    encoder = replace(
        stack_config(c, c.n_encoder_layers, c.encoder_heads),
        d_v=0 if c.d_v in (0, c.d_k or c.d_model // c.n_heads) else c.d_v,
        norm_eps=1e-12,
        max_len=length,
        embedding_scale=1.0,
        embedding_norm=True,
        n_types=2,
    )
    return NetworkConfig("bert", vocab_size=c.vocab_size, encoder=encoder, head="masked", head_activation=c.activation)


def encoder_config(c: TransformerConfig, length: int) -> NetworkConfig:
    """BERT without a head."""
    return replace(masked_lm_config(c, length), head="none", tie_head=False)


def electra_configs(c: TransformerConfig, length: int) -> tuple[NetworkConfig, NetworkConfig]:
    """ELECTRA's discriminator and generator, which share embeddings.

    Raises:
        UserError: a quarter of the width is not a multiple of a quarter of the heads.
    """
    n_heads = max(1, c.n_heads // NARROWER)
    if c.d_model % (NARROWER * n_heads):
        raise UserError(
            f"model.d_model = {c.d_model}: a generator a quarter as wide has {n_heads} heads; make it a multiple of "
            f"{NARROWER * n_heads}"
        )
    sizes = {"d_model": c.d_model // NARROWER, "d_ff": max(1, c.d_ff // NARROWER), "n_heads": n_heads}
    configs = []
    for shape, head in ((c, "replaced"), (replace(c, **sizes, d_k=0, d_v=0), "masked")):
        config = masked_lm_config(shape, length)
        assert config.encoder
        encoder = replace(config.encoder, d_embedding=c.d_model)
        configs.append(replace(config, family="electra", encoder=encoder, head=head, tie_head=head == "masked"))
    discriminator, generator = configs
    return discriminator, replace(generator, head_activation="gelu")


def vit_config(c: TransformerConfig) -> NetworkConfig:
    """ViT with a classification head; `UserError` unless positions are learned."""
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

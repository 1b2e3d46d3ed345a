"""A recipe's [model] of a language model as the axes of GPT-2, LLaMA or BERT, in whose layout it is kept.

With learned positions it is GPT-2's, with rotary ones LLaMA's; one that fills in what is masked is BERT's, and one that
says what was replaced ELECTRA's. What
none has a word for is refused, for it would be lost in the file. Embeddings are not scaled, as in none of them: section
3.4 of the paper is about encoders and decoders.
"""

from dataclasses import replace

from headwise.config.model import TransformerConfig
from headwise.errors import UserError
from headwise.network.config import NetworkConfig
from headwise.network.from_recipe import stack_config

FAMILY_OF = {"learned": "gpt2", "rotary": "llama"}  # by how positions enter
NARROWER = 4  # times a generator is narrower than its discriminator (arXiv:2003.10555, section 3.2: 1/4 to 1/2)


def language_axes(c: TransformerConfig, length: int) -> NetworkConfig:
    """The axes of a decoder alone that reads up to `length` tokens."""
    family = FAMILY_OF.get(c.positions, "llama")
    decoder = replace(
        stack_config(c, c.n_decoder_layers),
        d_v=0 if c.d_v in (0, c.d_k or c.d_model // c.n_heads) else c.d_v,
        n_kv_heads=(c.n_kv_heads or c.n_heads) if family == "llama" else c.n_kv_heads,
        max_len=length if family == "gpt2" else 0,
        embedding_scale=1.0,
    )
    return NetworkConfig(family, vocab_size=c.vocab_size, decoder=decoder, tie_head=c.tied_embeddings != "none")


def masked_axes(c: TransformerConfig, length: int) -> NetworkConfig:
    """The axes of an encoder alone that reads up to `length` tokens and tells those that are masked."""
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


def body_axes(c: TransformerConfig, length: int) -> NetworkConfig:
    """The same without a head, for a task to put its own on."""
    return replace(masked_axes(c, length), head="none", tie_head=False)


def replaced_axes(c: TransformerConfig, length: int) -> tuple[NetworkConfig, NetworkConfig]:
    """The axes of an ELECTRA: of the discriminator, and of the generator, which reads the same embeddings.

    Raises:
        UserError: a quarter of the width cannot be cut into a quarter of the heads.
    """
    n_heads = max(1, c.n_heads // NARROWER)
    if c.d_model % (NARROWER * n_heads):
        raise UserError(
            f"model.d_model = {c.d_model}: a generator a quarter as wide has {n_heads} heads; make it a multiple of "
            f"{NARROWER * n_heads}"
        )
    sizes = {"d_model": c.d_model // NARROWER, "d_ff": max(1, c.d_ff // NARROWER), "n_heads": n_heads}
    found = []
    for shape, head in ((c, "replaced"), (replace(c, **sizes, d_k=0, d_v=0), "masked")):
        axes = masked_axes(shape, length)
        assert axes.encoder
        encoder = replace(axes.encoder, d_embedding=c.d_model)
        found.append(replace(axes, family="electra", encoder=encoder, head=head, tie_head=head == "masked"))
    discriminator, generator = found
    return discriminator, replace(generator, head_activation="gelu")

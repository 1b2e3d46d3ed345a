"""A recipe's [model] of a language model as the axes of GPT-2, LLaMA or BERT, in whose layout it is kept.

With learned positions it is GPT-2's, with rotary ones LLaMA's, and one that fills in what is masked is BERT's. What
none has a word for is refused, for it would be lost in the file. Embeddings are not scaled, as in none of them: section
3.4 of the paper is about encoders and decoders.
"""

from dataclasses import replace

from sightline.config import ModelConfig
from sightline.families.sightline import stack
from sightline.network.axes import NetworkConfig

FAMILY_OF = {"learned": "gpt2", "rotary": "llama"}  # by how positions enter


def language_axes(c: ModelConfig, length: int) -> NetworkConfig:
    """The axes of a decoder alone that reads up to `length` tokens."""
    family = FAMILY_OF.get(c.positions, "llama")
    decoder = replace(
        stack(c, c.n_decoder_layers),
        d_v=0 if c.d_v in (0, c.d_k or c.d_model // c.n_heads) else c.d_v,
        n_kv_heads=(c.n_kv_heads or c.n_heads) if family == "llama" else c.n_kv_heads,
        max_len=length if family == "gpt2" else 0,
        embedding_scale=1.0,
    )
    return NetworkConfig(family, vocab_size=c.vocab_size, decoder=decoder, tie_head=c.tied_embeddings != "none")


def masked_axes(c: ModelConfig, length: int) -> NetworkConfig:
    """The axes of an encoder alone that reads up to `length` tokens and tells those that are masked."""
    encoder = replace(
        stack(c, c.n_encoder_layers, c.encoder_heads),
        d_v=0 if c.d_v in (0, c.d_k or c.d_model // c.n_heads) else c.d_v,
        norm_eps=1e-12,
        max_len=length,
        embedding_scale=1.0,
        embedding_norm=True,
        n_types=2,
    )
    return NetworkConfig("bert", vocab_size=c.vocab_size, encoder=encoder, head="masked", head_activation=c.activation)

"""Our own family: a recipe's [model] to the axes that networks are built from (`network.axes`).

With the defaults it is the paper's Transformer (arXiv:1706.03762); every other field is one of its Table 3, or what a
descendant changed. Parameters need no table of names: the names in a model directory are those of the modules.
"""

from headwise.config.model import TransformerConfig
from headwise.network.build import build, build_pooled, series_front, token_front
from headwise.network.config import NetworkConfig, RotaryConfig, StackConfig
from headwise.network.pooled import PooledEncoder
from headwise.network.transformer import Transformer

POSITIONS = {"sinusoidal": "sinusoidal_interleaved", "learned": "learned"}  # the others enter in attention
BUCKETS = 32  # of relative positions, as in T5


def axes(c: TransformerConfig) -> NetworkConfig:
    """The axes of a Transformer that translates."""
    return NetworkConfig(
        "headwise",
        vocab_size=c.vocab_size,
        encoder=stack(c, c.n_encoder_layers, c.encoder_heads),
        decoder=stack(c, c.n_decoder_layers, c.decoder_heads, c.cross_heads),
        share_embeddings=c.tied_embeddings == "all",
        tie_head=c.tied_embeddings != "none",
    )


def stack(
    c: TransformerConfig, n_layers: int, heads: tuple[int, ...] = (), cross_heads: tuple[int, ...] = ()
) -> StackConfig:
    """The axes of one stack."""
    d_head = c.d_model // c.n_heads  # a head stays as wide when others go
    return StackConfig(
        c.d_model,
        n_layers,
        c.n_heads,
        c.d_ff,
        d_head=c.d_k or d_head,
        d_v=c.d_v or d_head,
        n_kv_heads=c.n_kv_heads,
        heads=heads,
        cross_heads=cross_heads,
        dropout=c.dropout,
        attention_bias="qkvo" if c.biases else "",
        normalise_heads=c.normalise_heads,
        activation=c.activation,
        gated=c.gated,
        ffn_bias=c.biases,
        norm=c.norm,
        norm_position=c.norm_position,
        positions=POSITIONS.get(c.positions, "none"),
        max_len=c.max_len,
        rotary=RotaryConfig(c.d_k or d_head) if c.positions == "rotary" else None,
        relative_buckets=BUCKETS if c.positions == "relative" else 0,
        embedding_scale=c.d_model**0.5,
    )


def build_model(c: TransformerConfig) -> Transformer:
    """The Transformer of that configuration with fresh parameters from torch's global generator."""
    assert c.vocab_size > 0, "vocab_size is known once a tokenizer is"
    network = build(axes(c))
    assert isinstance(network, Transformer)
    return network


def build_pooled_transformer(c: TransformerConfig) -> PooledEncoder:
    """The Transformer's encoder, pooled, with fresh parameters; of texts, or of a series where `n_inputs` says so."""
    encoder = stack(c, c.n_encoder_layers, c.encoder_heads)
    front = series_front(encoder, c.n_inputs) if c.n_inputs else token_front(encoder, c.vocab_size)
    return build_pooled(encoder, front, c.pooling, c.n_outputs)

"""The `[model]` section of a recipe as the configuration that networks are built from; needs no torch.

With the defaults it is the paper's Transformer (arXiv:1706.03762). Every other field is a row of its Table 3 or a later
change.
"""

from headwise.config.model import TransformerConfig
from headwise.config.network import NetworkConfig, RotaryConfig, StackConfig

POSITIONS = {"sinusoidal": "sinusoidal_interleaved", "learned": "learned"}  # the others are part of attention
BUCKETS = 32  # of relative positions, as in T5


def transformer_config(c: TransformerConfig) -> NetworkConfig:
    """The configuration of a Transformer that translates."""
    return NetworkConfig(
        "headwise",
        vocab_size=c.vocab_size,
        encoder=stack_config(c, c.n_encoder_layers, c.encoder_heads),
        decoder=stack_config(c, c.n_decoder_layers, c.decoder_heads, c.cross_heads),
        share_embeddings=c.tied_embeddings == "all",
        tie_head=c.tied_embeddings != "none",
    )


def stack_config(
    c: TransformerConfig, n_layers: int, heads: tuple[int, ...] = (), cross_heads: tuple[int, ...] = ()
) -> StackConfig:
    """The configuration of one stack."""
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

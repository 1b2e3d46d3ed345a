"""PaLM (arXiv:2204.02311), whose weights were never published: its block as a configuration of ours.

Changed in the Transformer (section 2): sub-layers side by side behind one norm, one head of keys and values for all
heads of queries, a gated feed-forward network with SiLU, rotary positions, tied embeddings, no bias anywhere. The
larger closed models (GPT-4, Claude) are known as decoders of this kind, and to no greater detail.
"""

from sightline.network.axes import NetworkConfig, RotaryConfig, StackConfig


def palm_config(vocab_size: int, d_model: int, n_layers: int, n_heads: int, d_head: int = 256) -> NetworkConfig:
    """A decoder of PaLM's blocks; PaLM 540B is (256000, 18432, 118, 48)."""
    stack = StackConfig(
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=1,
        d_ff=4 * d_model,
        d_head=d_head,
        attention_bias="",
        activation="silu",
        gated=True,
        ffn_bias=False,
        norm="layer_unbiased",
        parallel="one_norm",
        rotary=RotaryConfig(d_head),
    )
    return NetworkConfig("palm", vocab_size=vocab_size, decoder=stack, tie_head=True)

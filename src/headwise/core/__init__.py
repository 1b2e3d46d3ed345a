"""The network, in the order of "Attention Is All You Need" (arXiv:1706.03762), section 3.

This package depends on torch and on the settings in `headwise.config`; it knows nothing of text, files or training.
"""

# Names that keep their meaning and their parameters (docs/reference/stable-names.md), in the order of the paper.
STABLE = (
    *("attention.scaled_dot_product_attention", "attention.masked_softmax", "attention.Kernel", "attention.DotProduct"),
    *("attention.MultiHeadAttention", "attention.split_heads", "attention.merge_heads"),
    *("masks.causal_mask", "masks.Causal", "masks.Everywhere"),
    *("layers.FeedForward", "layers.GatedFeedForward"),
    *("embeddings.Embeddings", "positions.sinusoids", "positions.SinusoidalPositions", "positions.LearnedPositions"),
    *("positions.NoPositions", "extensions.rotary.Rotary", "layers.RMSNorm"),
    *("layers.Sublayer", "layers.EncoderLayer", "layers.DecoderLayer"),
    *("layers.Encoder", "layers.Decoder", "layers.CausalStack"),
    *("transformer.Transformer", "transformer.Transformer.encode", "transformer.Transformer.decode"),
    *("transformer.Transformer.logits", "transformer.Transformer.start_cache", "transformer.Transformer.states"),
    *("transformer.EncoderOnly", "transformer.DecoderOnly"),
    "build.build",
)

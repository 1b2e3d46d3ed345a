"""The network, in the order of "Attention Is All You Need" (arXiv:1706.03762), section 3.

This package depends on torch and on the settings in `headwise.config`; it knows nothing of files. The C library, which
computes parts of a training step faster, is attached from outside.
"""

from collections.abc import Callable
from typing import Any

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

_attached: list[Callable[[], Any]] = []


def attach_library(library: Callable[[], Any]) -> None:
    """Let the C library that `library()` returns compute dropout and softmax of a training step on CPUs."""
    _attached[:] = [library]


def training_library() -> Any:
    """The attached C library; None: torch computes."""
    return _attached[0]() if _attached else None

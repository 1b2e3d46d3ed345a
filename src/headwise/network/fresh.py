"""Fresh parameters (initialisation)."""

from torch import nn

from headwise.network.attention import MultiHeadAttention
from headwise.network.feed_forward import FeedForward, GatedFeedForward
from headwise.network.stacks import CausalStack, Decoder, Encoder


def initialize(network: nn.Module) -> None:
    """Xavier's uniform and biases of zero; what sub-layers add to the residual stream is drawn smaller.

    By (2N)^-1/2 for a stack of N layers, as GPT-2 does (section 2.3 of its report); the paper says nothing of it.
    Otherwise a post-norm model of several layers learns to use its source only after thousands of updates
    (benchmarks/results, quality). Tables of embeddings have standard deviation d_model^-1/2: after the scale of section
    3.4 a component has variance 1.
    """
    gains = _residual_gains(network)
    for module in network.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight, gain=gains.get(module, 1.0))
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)


def _residual_gains(network: nn.Module) -> dict[nn.Module, float]:
    """The last projection of each sub-layer, and by how much it starts smaller."""
    gains: dict[nn.Module, float] = {}
    for stack in (module for module in network.modules() if isinstance(module, Encoder | Decoder | CausalStack)):
        for module in stack.modules():
            if isinstance(module, MultiHeadAttention):
                gains[module.o_proj] = (2 * len(stack.layers)) ** -0.5
            elif isinstance(module, FeedForward | GatedFeedForward):
                gains[module.down_proj] = (2 * len(stack.layers)) ** -0.5
    return gains

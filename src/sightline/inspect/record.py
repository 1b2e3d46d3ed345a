"""Attention weights of a model that runs on fused kernels, which have none to give.

While a recording is on, each chosen attention is computed a second time by the explicit kernel, from the very inputs
it was called with; the model's own output is untouched, bit for bit, and nothing is kept when the recording ends.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sightline.model.attention import MultiHeadAttention, scaled_dot_product_attention
from sightline.model.cache import LayerCache
from sightline.model.transformer import Transformer


def cross_attentions(model: Transformer) -> dict[str, MultiHeadAttention]:
    """The attentions of the decoder over the source, by name, first layer first."""
    return {name: m for name, m in _attentions(model).items() if name.endswith("cross_attn")}


def _attentions(model: nn.Module) -> dict[str, MultiHeadAttention]:
    return {name: m for name, m in model.named_modules() if isinstance(m, MultiHeadAttention)}


@contextmanager
def recording(modules: Mapping[str, MultiHeadAttention]) -> Iterator[dict[str, Tensor]]:
    """Inside, the weights (batch, heads, queries, keys) of the last call of each of `modules`, by its name."""
    weights: dict[str, Float[Tensor, "batch heads queries keys"]] = {}

    def hook(name: str) -> Any:
        def record(module: MultiHeadAttention, inputs: tuple[Any, ...], output: Tensor) -> None:
            x, memory, mask = inputs[:3]
            cache: LayerCache | None = inputs[3] if len(inputs) > 3 else None
            with torch.no_grad():
                q = module.split_heads(module.q_proj(x))
                k, v = module.keys_and_values(memory, None) if cache is None else cache.read()
                weights[name] = scaled_dot_product_attention(q, k, v, mask)[1]

        return record

    handles = [module.register_forward_hook(hook(name)) for name, module in modules.items()]
    try:
        yield weights
    finally:
        for handle in handles:
            handle.remove()

"""Attention weights of a model that runs on fused kernels, which have none to give.

While a recording is on, each chosen attention is computed a second time by the explicit kernel, from the very inputs
it was called with; the model's own output is untouched, bit for bit, and nothing is kept when the recording ends.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sightline.architectures import Network
from sightline.baselines.attention import DotAttention
from sightline.model.attention import MultiHeadAttention, scaled_dot_product_attention
from sightline.model.cache import LayerCache

Attention = MultiHeadAttention | DotAttention


def cross_attentions(model: Network) -> dict[str, Attention]:
    """The attentions of the decoder over the source, by name, first layer first; none where there is no attention."""
    return {name: m for name, m in model.named_modules() if isinstance(m, Attention) and name.endswith("cross_attn")}


@contextmanager
def recording(modules: Mapping[str, Attention]) -> Iterator[dict[str, Tensor]]:
    """Inside, the weights (batch, heads, queries, keys) of the last call of each of `modules`, by its name.

    A recurrent decoder may call its one attention for each target position; of those, the queries of all calls stand
    in a row, so that a pass has all its positions. Such a recording is for one pass.
    """
    weights: dict[str, Float[Tensor, "batch heads queries keys"]] = {}

    def hook(name: str) -> Any:
        def record(module: Attention, inputs: tuple[Any, ...], output: Tensor) -> None:
            with torch.no_grad():
                if isinstance(module, MultiHeadAttention):
                    weights[name] = _multi_head_weights(module, *inputs)
                else:
                    query, keys, _, src_mask = inputs
                    new = module.weights(query, keys, src_mask).unsqueeze(1)
                    weights[name] = torch.cat([weights[name], new], 2) if name in weights else new

        return record

    handles = [module.register_forward_hook(hook(name)) for name, module in modules.items()]
    try:
        yield weights
    finally:
        for handle in handles:
            handle.remove()


def _multi_head_weights(
    module: MultiHeadAttention, x: Tensor, memory: Tensor, mask: Tensor | None, cache: LayerCache | None = None
) -> Float[Tensor, "batch heads queries keys"]:
    q = module.split_heads(module.q_proj(x))
    k, v = module.keys_and_values(memory, None) if cache is None else cache.read()
    return scaled_dot_product_attention(q, k, v, mask)[1]

"""Texts as vectors: an encoder's last hidden states, pooled.

Means and lengths as sentence-transformers has them (arXiv:1908.10084): marks count as tokens, padding does not.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Float32
from torch import Tensor
from torch.nn import functional as F

from sightline.generation.rewrite import pad_right

Pooling = Callable[[Tensor, Tensor], Tensor]


def mean(
    hidden: Float[Tensor, "batch length d_model"], mask: Bool[Tensor, "batch length"]
) -> Float[Tensor, "batch d_model"]:
    """The mean of the states of real tokens."""
    weights = mask.to(hidden.dtype).unsqueeze(-1)
    return (hidden * weights).sum(1) / weights.sum(1)


def first(
    hidden: Float[Tensor, "batch length d_model"], mask: Bool[Tensor, "batch length"]
) -> Float[Tensor, "batch d_model"]:
    """The state at the first token, which BERT trains to stand for the whole."""
    return hidden[:, 0]


POOLINGS: dict[str, Pooling] = {"mean": mean, "first": first}


@runtime_checkable
class Encoder(Protocol):
    """A network with a state for every token: `EncoderOnly`, `EncoderDecoder`, or what reads as one."""

    def parameters(self) -> Iterator[torch.nn.Parameter]: ...
    def encode(self, src: Tensor, src_mask: Tensor, /) -> Tensor: ...


@torch.inference_mode()
def embed(
    network: Encoder,
    texts: Sequence[Sequence[int]],
    pad_id: int,
    pooling: Pooling,
    normalize: bool,
    batch_size: int,
) -> Float32[Tensor, "texts d_model"]:
    """One vector for each text, in order; with `normalize` of length 1, so that products are cosines."""
    device, order = next(network.parameters()).device, sorted(range(len(texts)), key=lambda i: -len(texts[i]))
    found: dict[int, Tensor] = {}
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        src, mask = (x.to(device) for x in pad_right([texts[i] for i in batch], pad_id))
        vectors = pooling(network.encode(src, mask), mask).float().cpu()
        found |= dict(zip(batch, F.normalize(vectors, dim=-1) if normalize else vectors, strict=True))
    return torch.stack([found[i] for i in range(len(texts))])

"""Text embeddings: the last hidden states of an encoder, pooled, and further steps.

As in sentence-transformers (arXiv:1908.10084): special tokens are pooled, padding is not. Not here: the settings of a
folder (`sentences`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Float32, Int
from torch import Tensor
from torch.nn import functional as F

from headwise.decode.stepwise import pad_right

TextStates = Float[Tensor, "batch length d_model"]
Real = Bool[Tensor, "batch length"]  # which states are pooled; the others are padding or a prompt
Vectors = Float[Tensor, "batch d_model"]
StatesToVector = Callable[[Tensor, Tensor], Tensor]
VectorStep = Callable[[Tensor], Tensor]  # vectors to vectors


# --- Poolings: from states and their mask to one vector for each text ---


def first(hidden: TextStates, mask: Real) -> Vectors:
    """The first state, which BERT trains to represent the whole text ([CLS])."""
    return _state_at(hidden, mask.int().argmax(1))


def last(hidden: TextStates, mask: Real) -> Vectors:
    """The last state, in a decoder the only one that sees the whole text."""
    return _state_at(hidden, mask.size(1) - 1 - mask.int().flip(1).argmax(1))


def max_pooling(hidden: TextStates, mask: Real) -> Vectors:
    """The maximum of each component."""
    return hidden.masked_fill(~mask.unsqueeze(-1), -torch.inf).amax(1)


def mean_pooling(hidden: TextStates, mask: Real) -> Vectors:
    """The mean of the states."""
    return _weighted(hidden, mask, power=1.0)


def mean_sqrt_len(hidden: TextStates, mask: Real) -> Vectors:
    """The sum of the states over the square root of their number."""
    return _weighted(hidden, mask, power=0.5)


def weighted_mean(hidden: TextStates, mask: Real) -> Vectors:
    """The mean of the states, the n-th counted n times (SGPT, arXiv:2202.08904)."""
    return _weighted(hidden, mask * torch.arange(1, mask.size(1) + 1, device=mask.device), power=1.0)


def _state_at(hidden: TextStates, position: Int[Tensor, " batch"]) -> Vectors:
    return hidden[torch.arange(len(hidden), device=hidden.device), position]


def _weighted(hidden: TextStates, weights: Tensor, power: float) -> Vectors:
    """The weighted sum over a power of the sum of the weights; zero if all weights are zero."""
    weights = weights.to(hidden.dtype).unsqueeze(-1)
    return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1e-9) ** power


POOLINGS: dict[str, StatesToVector] = {
    "first": first,
    "max": max_pooling,
    "mean": mean_pooling,
    "mean_sqrt_len": mean_sqrt_len,
    "weighted_mean": weighted_mean,
    "last": last,
}  # in the order in which several are concatenated


# --- Further steps ---


def unit(vectors: Vectors) -> Vectors:
    """Vectors of length 1, whose products are cosines."""
    return F.normalize(vectors, dim=-1)


@dataclass(frozen=True)
class Dense:
    """activation(W x + b)."""

    weight: Float32[Tensor, "out in"]
    bias: Float32[Tensor, " out"] | None
    activation: VectorStep

    def __call__(self, vectors: Float[Tensor, "batch in"]) -> Float[Tensor, "batch out"]:
        bias = None if self.bias is None else self.bias.to(vectors.device)
        return self.activation(F.linear(vectors, self.weight.to(vectors.device), bias))


@runtime_checkable
class TextEncoder(Protocol):
    """A network with a state for every token, such as `EncoderOnly` or `Transformer`."""

    def parameters(self) -> Iterator[torch.nn.Parameter]: ...
    def encode(self, src: Tensor, src_mask: Tensor, /) -> Tensor: ...


@torch.inference_mode()
def embed(
    network: TextEncoder,
    texts: Sequence[Sequence[int]],
    pad_id: int,
    poolings: Sequence[str],
    steps: Sequence[VectorStep],
    width: int,
    batch_size: int,
    skip: int = 0,
) -> Float32[Tensor, "texts width"]:
    """One vector for each text, in order; zeros for a text without a token.

    Args:
        poolings: of `POOLINGS`; several are concatenated.
        steps: functions of the pooled vectors, in order.
        width: of the resulting vectors.
        skip: tokens at the start of each text that are not pooled.
    """
    device = next(network.parameters()).device
    order = sorted((i for i, text in enumerate(texts) if text), key=lambda i: -len(texts[i]))
    found = torch.zeros(len(texts), width)
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        src, mask = (x.to(device) for x in pad_right([texts[i] for i in batch], pad_id))
        hidden = network.encode(src, mask).float()
        mask[:, :skip] = False
        vectors = torch.cat([POOLINGS[name](hidden, mask) for name in poolings], dim=-1)
        for step in steps:
            vectors = step(vectors)
        found[batch] = vectors.cpu()
    return found

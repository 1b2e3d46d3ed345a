"""Poolings of text embeddings with gradients, for training; `models.encoding.embed` computes the same without torch."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

TextStates = Float[Tensor, "batch length d_model"]
Real = Bool[Tensor, "batch length"]  # which states are pooled; the others are padding
PooledStates = Float[Tensor, "batch d_model"]


def first(hidden: TextStates, mask: Real) -> PooledStates:
    """The first state, which BERT trains to represent the whole text ([CLS])."""
    return _state_at(hidden, mask.int().argmax(1))


def last(hidden: TextStates, mask: Real) -> PooledStates:
    """The last state, in a decoder the only one that sees the whole text."""
    return _state_at(hidden, mask.size(1) - 1 - mask.int().flip(1).argmax(1))


def max_pooling(hidden: TextStates, mask: Real) -> PooledStates:
    """The maximum of each component."""
    return hidden.masked_fill(~mask.unsqueeze(-1), -torch.inf).amax(1)


def mean_pooling(hidden: TextStates, mask: Real) -> PooledStates:
    """The mean of the states."""
    return _weighted(hidden, mask, power=1.0)


def mean_sqrt_len(hidden: TextStates, mask: Real) -> PooledStates:
    """The sum of the states over the square root of their number."""
    return _weighted(hidden, mask, power=0.5)


def weighted_mean(hidden: TextStates, mask: Real) -> PooledStates:
    """The mean of the states, the n-th counted n times (SGPT, arXiv:2202.08904)."""
    return _weighted(hidden, mask * torch.arange(1, mask.size(1) + 1, device=mask.device), power=1.0)


def _state_at(hidden: TextStates, position: Int[Tensor, " batch"]) -> PooledStates:
    return hidden[torch.arange(len(hidden), device=hidden.device), position]


def _weighted(hidden: TextStates, weights: Tensor, power: float) -> PooledStates:
    """The weighted sum over a power of the sum of the weights; zero if all weights are zero."""
    weights = weights.to(hidden.dtype).unsqueeze(-1)
    return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1e-9) ** power


TEXT_POOLINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "first": first,
    "max": max_pooling,
    "mean": mean_pooling,
    "mean_sqrt_len": mean_sqrt_len,
    "weighted_mean": weighted_mean,
    "last": last,
}


def pooled_vectors(hidden: TextStates, mask: Real, poolings: Sequence[str]) -> Float[Tensor, "batch width"]:
    """Poolings by name, concatenated."""
    return torch.cat([TEXT_POOLINGS[name](hidden, mask) for name in poolings], -1)

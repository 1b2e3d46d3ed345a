"""An encoder with pooled states and a linear output layer, for classification and forecasting.

Mean and last-state pooling come from recurrent and convolutional classifiers; "first" is BERT's (arXiv:1810.04805).
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headwise.core.dropout import Dropout

Pooling = Callable[[Tensor, Tensor], Tensor]  # (states, mask) to one vector per row


def mean_state(
    states: Float[Tensor, "batch length width"], mask: Bool[Tensor, "batch length"]
) -> Float[Tensor, "batch width"]:
    """The mean over real positions."""
    real = mask.unsqueeze(-1)
    return (states * real).sum(1) / real.sum(1)


def first_state(
    states: Float[Tensor, "batch length width"], mask: Bool[Tensor, "batch length"]
) -> Float[Tensor, "batch width"]:
    """The state at the first position."""
    return states[:, 0]


def last_state(
    states: Float[Tensor, "batch length width"], mask: Bool[Tensor, "batch length"]
) -> Float[Tensor, "batch width"]:
    """The state at the last real position; padding is on the right."""
    return states[torch.arange(len(states), device=states.device), mask.sum(1) - 1]


def final_states(
    states: Float[Tensor, "batch length width"], mask: Bool[Tensor, "batch length"]
) -> Float[Tensor, "batch width"]:
    """The final states of both directions of an encoder, concatenated; the backward one ends at the first position."""
    half = states.size(-1) // 2
    return torch.cat([last_state(states, mask)[:, :half], first_state(states, mask)[:, half:]], -1)


POOLINGS: dict[str, Pooling] = {"mean": mean_state, "first": first_state, "last": last_state}


class PooledEncoder(nn.Module):
    """W dropout(pool(encoder(embeddings(src)))) + b.

    `states` extracts the states to pool from the encoder's output. Build one with
    `headwise.pytorch.architectures.registry.build_pooled`.
    """

    def __init__(
        self,
        embeddings: nn.Module,
        encoder: nn.Module,
        states: Callable[[Any], Tensor],
        pool: Pooling,
        output: nn.Linear,
        dropout: float,
    ) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.encoder = encoder
        self.output = output
        self.dropout = Dropout(dropout)
        self._states = states
        self._pool = pool

    def forward(
        self,
        src: Int[Tensor, "batch length"] | Float[Tensor, "batch length columns"],
        src_mask: Bool[Tensor, "batch length"],
    ) -> Float[Tensor, "batch outputs"]:
        """Logits of classes, or forecast values; `src_mask` is True on real positions, with padding on the right."""
        states = self._states(self.encoder(self.embeddings(src), src_mask))
        return self.output(self.dropout(self._pool(states, src_mask)))

"""Many to one: an encoder, its states pooled into one vector, and a linear map to classes or to values to come.

The paper has nothing of this; pooling is what the literature on recurrent and convolutional classifiers uses, and
"first" is BERT's way (arXiv:1810.04805). Other heads are in `heads.py`.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headwise.network.dropout import Dropout

Pooling = Callable[[Tensor, Tensor], Tensor]  # states and mask to one vector a row; see `mean_state`


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
    """The state at the last real position; real ones stand first."""
    return states[torch.arange(len(states), device=states.device), mask.sum(1) - 1]


def final_states(
    states: Float[Tensor, "batch length width"], mask: Bool[Tensor, "batch length"]
) -> Float[Tensor, "batch width"]:
    """Of an encoder in two directions, side by side: where each of them ended. The backward one ends at the start."""
    half = states.size(-1) // 2
    return torch.cat([last_state(states, mask)[:, :half], first_state(states, mask)[:, half:]], -1)


POOLINGS: dict[str, Pooling] = {"mean": mean_state, "first": first_state, "last": last_state}


class PooledEncoder(nn.Module):
    """W dropout(pool(encoder(embeddings(src)))) + b.

    `states` takes the states to be pooled out of what the encoder returns, which is each architecture's own affair.
    Build one with `headwise.architectures.registry.build_pooled`.
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
        """Unnormalised scores of the classes, or values to come.

        `src_mask` is True on what is real, which stands first; nothing else has an influence.
        """
        states = self._states(self.encoder(self.embeddings(src), src_mask))
        return self.output(self.dropout(self._pool(states, src_mask)))

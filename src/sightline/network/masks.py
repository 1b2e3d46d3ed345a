"""Who may attend to whom. Every mask is boolean and True means "may attend"."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

# What attention takes: a mask, or what is added to the scores where positions are part of them (T5); None = all may.
Mask = Bool[Tensor, "#batch #heads #queries all_keys"] | Float[Tensor, "#batch #heads #queries all_keys"] | None


def padding_mask(tokens: Int[Tensor, "batch length"], pad_id: int) -> Bool[Tensor, "batch length"]:
    """True on real tokens.

    >>> padding_mask(torch.tensor([[5, 6, 0]]), pad_id=0).tolist()
    [[True, True, False]]
    """
    return tokens != pad_id


def causal_mask(queries: int, keys: int, device: torch.device) -> Bool[Tensor, "queries keys"]:
    """A position sees itself and what came before it (section 3.2.3); the queries are the last of the keys.

    >>> causal_mask(2, 3, torch.device("cpu")).tolist()
    [[True, True, False], [True, True, True]]
    """
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def within_window(queries: int, keys: int, width: int, device: torch.device) -> Bool[Tensor, "queries keys"]:
    """A position sees the last `width` ones up to itself, and all after it; the queries are the last of the keys.

    >>> within_window(2, 4, 2, torch.device("cpu")).tolist()
    [[False, True, True, True], [False, False, True, True]]
    """
    return torch.ones(queries, keys, dtype=torch.bool, device=device).triu(keys - queries - width + 1)


def over_keys(mask: Bool[Tensor, "batch keys"] | None) -> Bool[Tensor, "batch 1 1 keys"] | None:
    """A mask of keys in the form that attention takes, the same for all heads and queries."""
    return None if mask is None else mask[:, None, None, :]


class Everywhere(nn.Module):
    """An encoder's reach: every position sees all that is real."""

    def forward(
        self, mask: Bool[Tensor, "batch keys"] | None, start: int, queries: int, device: torch.device
    ) -> Bool[Tensor, "batch 1 1 keys"] | None:
        """`mask` is True on real keys; the queries stand at `start` and after it."""
        return over_keys(mask)


class Causal(nn.Module):
    """A decoder's reach: every position sees itself and what is real before it."""

    def forward(
        self, mask: Bool[Tensor, "batch keys"] | None, start: int, queries: int, device: torch.device
    ) -> Bool[Tensor, "#batch 1 #queries keys"] | None:
        """As `Everywhere.forward`; the keys are all positions up to the last query."""
        # A single new position may attend to everything before it: no mask, and the fastest kernel.
        earlier = causal_mask(queries, start + queries, device)[None, None] if queries > 1 else None
        real = over_keys(mask)
        return real if earlier is None else earlier if real is None else earlier & real

"""Who may attend to whom. Every mask is boolean and True means "may attend"."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor


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

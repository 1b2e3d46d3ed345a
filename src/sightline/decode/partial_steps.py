"""A model's steps over the places of a shortlist's `Candidates` instead of a whole vocabulary, with torch.

The search is given places and bias, and knows nothing of ids.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sightline.decode.candidates import Candidates
from sightline.decode.constraints import FREE, Limits
from sightline.decode.search import Cache


@runtime_checkable
class PartialOutput(Protocol):
    """A model that can compute the logits of some pieces only, for less than those of all."""

    def output_rows(self, ids: Tensor) -> Callable[[Tensor], Tensor]: ...


class PartialSteps:
    """Candidates on a device."""

    def __init__(self, few: Candidates, device: torch.device) -> None:
        self.ids = torch.from_numpy(few.ids).to(device)
        self._allowed = torch.from_numpy(few.allowed).to(device)

    def limits(self, limits: Limits) -> Limits:
        """The same limits with a prefix of places."""
        places = torch.searchsorted(self.ids, limits.prefix)
        return replace(limits, prefix=torch.where(limits.prefix == FREE, FREE, places))

    def cache(self, cache: Any) -> "CandidateCache":
        """A cache of these sentences that knows what each may write."""
        bias = torch.zeros(self._allowed.shape, device=self.ids.device)
        return CandidateCache(cache, bias.masked_fill_(~self._allowed, -torch.inf))

    def step(self, model: Any) -> Callable[[Tensor, "CandidateCache"], Tensor]:
        """The step function of a model, from places to the logits of places."""
        logits = logits_of(model, self.ids)

        def step(places: Int[Tensor, "rows new"], cache: CandidateCache) -> Float[Tensor, "rows places"]:
            state = cache.state
            hidden = model.decode(self.ids[places], state.memory, state.src_mask, state)
            return logits(hidden[:, -1]).add_(cache.bias)  # many times faster than to fill by a boolean mask

        return step


def logits_of(model: Any, ids: Int[Tensor, " n"]) -> Callable[[Any], Tensor]:
    """From a model's hidden states to the logits of `ids`; one that can compute only all of them is slower at it."""
    if isinstance(model, PartialOutput):
        return model.output_rows(ids)
    return lambda hidden: model.logits(hidden).index_select(-1, ids)


class CandidateCache:
    """A model's cache and, for each of its rows, 0 for what may be written there and -inf for what may not."""

    def __init__(self, state: Cache, bias: Float[Tensor, "rows places"]) -> None:
        self.state: Any = state
        self.bias = bias

    def reorder(self, index: Int[Tensor, " rows"]) -> None:
        """As `Cache.reorder`; the rows of one sentence may all write the same."""
        self.state.reorder(index)

    def select(self, index: Int[Tensor, " kept"]) -> None:
        """As `Cache.select`."""
        self.state.select(index)
        self.bias = self.bias.index_select(0, index)

"""Search over the few pieces that a lexical shortlist allows, instead of a whole vocabulary.

A batch is searched in *places*: positions in the list of all pieces any of its sentences may write. Model and caller
speak of ids, search and constraints of places, and this module translates between the two. What only the other
sentences of a batch may write has no probability, so a sentence yields the same in any company. Probabilities are
those among a sentence's own candidates.

Not here: how a shortlist is learnt (`data/shortlist.py`), and the search itself, which knows nothing of all this.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sightline.decode.constraints import FREE, Limits
from sightline.decode.ranking import BLOCK
from sightline.decode.search import Cache, Hypothesis


@runtime_checkable
class PartialOutput(Protocol):
    """A model that can compute the logits of some pieces only, for less than those of all."""

    def output_rows(self, ids: Tensor) -> Callable[[Tensor], Tensor]: ...


class CandidateTable:
    """A shortlist ready for use: which pieces may be written for a source."""

    def __init__(
        self, frequent: Int[Tensor, " m"], likely: Int[Tensor, "vocab n"], device: torch.device | str = "cpu"
    ) -> None:
        self.frequent = frequent.long().to(device)
        self.likely = likely.long().to(device)

    def candidates(
        self,
        src: Int[Tensor, "batch src_len"],
        src_mask: Bool[Tensor, "batch src_len"],
        prefix: Int[Tensor, "batch prefix_len"],
        special: Sequence[int],
    ) -> "Candidates":
        """What the outputs of a batch may be made of.

        For each sentence the frequent pieces, the likely ones of its source pieces, these themselves, because any
        may be copied, its forced prefix and the `special` ids.
        """
        pieces = torch.where(src_mask, src, src[:, :1])  # padding allows nothing of its own
        forced = torch.where(prefix == FREE, special[0], prefix)
        allowed = torch.zeros(len(src), len(self.likely), dtype=torch.bool, device=src.device)
        allowed[:, [*self.frequent.tolist(), *special]] = True
        for ids in (self.likely[pieces].flatten(1), pieces, forced):
            allowed.scatter_(1, ids, True)
        used = allowed.any(0)
        spare = (~used).nonzero().squeeze(1)[: -int(used.sum()) % BLOCK]
        used[spare] = True  # nobody may write them, but selection is faster over whole blocks
        return Candidates(used.nonzero().squeeze(1), allowed[:, used])


@dataclass(frozen=True)
class Candidates:
    """The pieces a batch may write, and which of them each sentence may."""

    ids: Int[Tensor, " places"]  # ascending, so that places are ordered as ids are
    allowed: Bool[Tensor, "batch places"]

    def place(self, token: int) -> int:
        """Where an id is in the list; it must be there."""
        return int((self.ids == token).nonzero())

    def limits(self, limits: Limits) -> Limits:
        """The same limits with a prefix of places."""
        places = torch.searchsorted(self.ids, limits.prefix)
        return replace(limits, prefix=torch.where(limits.prefix == FREE, FREE, places))

    def cache(self, cache: Any) -> "CandidateCache":
        """A cache of these sentences that knows what each may write."""
        bias = torch.zeros(self.allowed.shape, device=self.ids.device)
        return CandidateCache(cache, bias.masked_fill_(~self.allowed, -torch.inf))

    def step(self, model: Any) -> Callable[[Tensor, "CandidateCache"], Tensor]:
        """The step function of a model, from places to the logits of places."""
        logits = self._logits_of(model)

        def step(places: Int[Tensor, "rows new"], cache: CandidateCache) -> Float[Tensor, "rows places"]:
            state = cache.state
            hidden = model.decode(self.ids[places], state.memory, state.src_mask, state)
            return logits(hidden[:, -1]).add_(cache.bias)  # many times faster than to fill by a boolean mask

        return step

    def _logits_of(self, model: Any) -> Callable[[Tensor], Tensor]:
        """From hidden states to the logits of places; a model that can compute only all of them is slower at it."""
        if isinstance(model, PartialOutput):
            return model.output_rows(self.ids)
        return lambda hidden: model.logits(hidden).index_select(-1, self.ids)

    def with_ids(self, hypothesis: Hypothesis) -> Hypothesis:
        """What a search over places has found, as ids."""
        return replace(hypothesis, tokens=self.ids[hypothesis.tokens].tolist())


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

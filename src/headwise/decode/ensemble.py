"""Several models in one search: at every step their log-probabilities are averaged, and the search goes on as with one.

log p(y) = mean over the models of log p_i(y), and the search makes it sum to 1 again: the normalised geometric mean of
their distributions. A log-softmax takes the same number from all logits of a row, so what is averaged here are logits,
and once normalised nothing differs: two times the same model is that model to the last bit.

Any object with the contract of `EncoderDecoder` can be a member, each on a device of its own. For the compiled library
`native.network.CompiledEnsemble` does the same, which a test holds against this one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headwise.contract import EncoderDecoder


class AveragedNetworks:
    """Models of one vocabulary as a model: the contract `EncoderDecoder`, for decoding alone."""

    def __init__(self, members: Sequence[EncoderDecoder]) -> None:
        """What is given out lies on the device of the first."""
        assert members, "an ensemble has members"
        self.members = tuple(members)
        self.training = any(member.training for member in members)

    def train(self, mode: bool = True) -> "AveragedNetworks":
        """Every member into training mode, or out of it."""
        self.training = mode
        for member in self.members:
            member.train(mode)
        return self

    def parameters(self) -> Iterator[Any]:
        """Of all members, those of the first before the others'."""
        return chain.from_iterable(member.parameters() for member in self.members)

    def encode(self, src: Int[Tensor, "batch src_len"], src_mask: Bool[Tensor, "batch src_len"]) -> tuple[Any, ...]:
        """What each member makes of the sources."""
        return tuple(member.encode(src.to(at), src_mask.to(at)) for member, at in self._placed())

    def start_cache(self, memory: tuple[Any, ...], src_mask: Bool[Tensor, "batch src_len"]) -> "EnsembleCache":
        """The caches of all members."""
        placed = zip(self._placed(), memory, strict=True)
        return EnsembleCache([member.start_cache(of, src_mask.to(at)) for (member, at), of in placed])

    def decode(
        self, tgt_in: Int[Tensor, "rows new"], memory: Any, src_mask: Any, cache: "EnsembleCache | None" = None
    ) -> "HiddenStates":
        """The members' hidden states; memory and mask are those of their caches."""
        assert cache is not None
        placed = zip(self._placed(), cache.members, strict=True)
        states = [member.decode(tgt_in.to(at), of.memory, of.src_mask, of) for (member, at), of in placed]
        return HiddenStates(tuple(states))

    def logits(self, hidden: "HiddenStates") -> Float[Tensor, "*any vocab"]:
        """The mean of the members' logits."""
        return mean_log_probs([member.logits(of) for member, of in zip(self.members, hidden.of_members, strict=True)])

    def _placed(self) -> list[tuple[EncoderDecoder, torch.device]]:
        return [(member, next(iter(member.parameters())).device) for member in self.members]


@dataclass(frozen=True)
class HiddenStates:
    """What the members say of the same positions, each (rows, new, its d_model)."""

    of_members: tuple[Tensor, ...]

    def __getitem__(self, index: Any) -> "HiddenStates":
        """Some of the positions, of every member."""
        return HiddenStates(tuple(states[index] for states in self.of_members))


class EnsembleCache:
    """The caches of the members, moved together."""

    def __init__(self, members: Sequence[Any]) -> None:
        self.members = tuple(members)
        self.memory = self.src_mask = None  # each member has its own

    def reorder(self, index: Int[Tensor, " rows"]) -> None:
        """As `search.Cache.reorder`."""
        for cache in self.members:
            cache.reorder(_beside(index, cache))

    def select(self, index: Int[Tensor, " kept"]) -> None:
        """As `search.Cache.select`."""
        for cache in self.members:
            cache.select(_beside(index, cache))

    @property
    def truncate(self) -> Callable[[int], None]:
        """As the members' own; no attribute where one of them has none, for it cannot take steps back."""
        own = [cache.truncate for cache in self.members]

        def truncate(length: int) -> None:
            for steps_back in own:
                steps_back(length)

        return truncate


def mean_log_probs(logits: Sequence[Float[Tensor, "*any vocab"]]) -> Float[Tensor, "*any vocab"]:
    """The mean, in float32 at least, on the device of the first; the sum is taken in order, as the library takes it."""
    first, *others = logits
    total = first.to(torch.promote_types(first.dtype, torch.float32))
    for other in others:
        total = total + other.to(total.device)
    return total / len(logits)


def _beside(index: Tensor, cache: Any) -> Tensor:
    """The index where a member's cache lies."""
    return index.to(cache.src_mask.device)

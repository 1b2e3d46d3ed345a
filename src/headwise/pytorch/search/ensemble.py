"""Ensembles: the log-probabilities of several models are averaged at every step.

log p(y) = mean over the models of log p_i(y), normalised by the search: the geometric mean of their distributions.
Log-softmax subtracts the same number from all logits of a row, so averaging logits is equivalent; an ensemble of two
identical models gives bit-identical results.

Any `EncoderDecoder` can be a member, each on its own device. `runtime.native.network.CompiledEnsemble` is the same for
the compiled library.
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
    """Models with one vocabulary as a single `EncoderDecoder`, for decoding only."""

    def __init__(self, members: Sequence[EncoderDecoder]) -> None:
        """Results are on the device of the first member."""
        assert members, "an ensemble has members"
        self.members = tuple(members)
        self.training = any(member.training for member in members)

    def train(self, mode: bool = True) -> "AveragedNetworks":
        """Set the mode of all members."""
        self.training = mode
        for member in self.members:
            member.train(mode)
        return self

    def parameters(self) -> Iterator[Any]:
        """The parameters of all members, in order."""
        return chain.from_iterable(member.parameters() for member in self.members)

    def encode(self, src: Int[Tensor, "batch src_len"], src_mask: Bool[Tensor, "batch src_len"]) -> tuple[Any, ...]:
        """The memory of each member."""
        return tuple(member.encode(src.to(at), src_mask.to(at)) for member, at in self._with_devices())

    def start_cache(self, memory: tuple[Any, ...], src_mask: Bool[Tensor, "batch src_len"]) -> "EnsembleCache":
        """The caches of all members."""
        placed = zip(self._with_devices(), memory, strict=True)
        return EnsembleCache([member.start_cache(of, src_mask.to(at)) for (member, at), of in placed])

    def decode(
        self, tgt_in: Int[Tensor, "rows new"], memory: Any, src_mask: Any, cache: "EnsembleCache | None" = None
    ) -> "HiddenStates":
        """The members' hidden states; memory and mask come from their caches."""
        assert cache is not None
        placed = zip(self._with_devices(), cache.members, strict=True)
        states = [member.decode(tgt_in.to(at), of.memory, of.src_mask, of) for (member, at), of in placed]
        return HiddenStates(tuple(states))

    def logits(self, hidden: "HiddenStates") -> Float[Tensor, "*any vocab"]:
        """The mean of the members' logits."""
        return mean_log_probs([member.logits(of) for member, of in zip(self.members, hidden.of_members, strict=True)])

    def _with_devices(self) -> list[tuple[EncoderDecoder, torch.device]]:
        return [(member, next(iter(member.parameters())).device) for member in self.members]


@dataclass(frozen=True)
class HiddenStates:
    """Hidden states of all members at the same positions, each (rows, new, d_model)."""

    of_members: tuple[Tensor, ...]

    def __getitem__(self, index: Any) -> "HiddenStates":
        """The states at some positions, of every member."""
        return HiddenStates(tuple(states[index] for states in self.of_members))


class EnsembleCache:
    """The caches of all members."""

    def __init__(self, members: Sequence[Any]) -> None:
        self.members = tuple(members)
        self.memory = self.src_mask = None  # in the members' caches

    def reorder(self, index: Int[Tensor, " rows"]) -> None:
        """See `search.Cache.reorder`."""
        for cache in self.members:
            cache.reorder(_on_device_of(index, cache))

    def select(self, index: Int[Tensor, " kept"]) -> None:
        """See `search.Cache.select`."""
        for cache in self.members:
            cache.select(_on_device_of(index, cache))

    @property
    def truncate(self) -> Callable[[int], None]:
        """Truncates all caches; `AttributeError` if a member's cache has no `truncate`."""
        own = [cache.truncate for cache in self.members]

        def truncate(length: int) -> None:
            for truncate_member in own:
                truncate_member(length)

        return truncate


def mean_log_probs(logits: Sequence[Float[Tensor, "*any vocab"]]) -> Float[Tensor, "*any vocab"]:
    """The mean in at least float32, on the device of the first; summed in order, like the compiled library."""
    first, *others = logits
    total = first.to(torch.promote_types(first.dtype, torch.float32))
    for other in others:
        total = total + other.to(total.device)
    return total / len(logits)


def _on_device_of(index: Tensor, cache: Any) -> Tensor:
    """The index on the device of a member's cache."""
    return index.to(cache.src_mask.device)

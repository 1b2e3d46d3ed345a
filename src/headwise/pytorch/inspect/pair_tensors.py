"""Inputs of the inspector as tensors: what a torch network reads in one pass, a translated pair among it."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.view.pair import TranslatedPair


@runtime_checkable
class InspectedInput(Protocol):
    """An input that a network reads in one pass, with names for its inputs and outputs."""

    @property
    def described(self) -> dict[str, Any]: ...  # the fields of a record but for the weights, and `read`
    @property
    def read(self) -> list[str]: ...  # by a decoder
    @property
    def written(self) -> list[str]: ...  # at each position of the head's predictions; "" where unknown
    def names(self, ids: Sequence[int], /) -> list[str]: ...  # of the head's outputs
    def read_by(self, network: Any) -> Tensor: ...  # the last hidden states, (1, positions, d_model)
    def as_shown(self, stack: str, weights: Tensor) -> Tensor: ...  # (heads, queries, keys), as many as have names


class PairTensors(TranslatedPair):
    """A translated pair as an `InspectedInput`."""

    def as_shown(self, stack: str, weights: Tensor) -> Tensor:
        """Every token is shown."""
        return weights

    def tensors(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """`src`, `tgt_in` and `src_mask` of one row."""
        src = torch.tensor([self.src], device=device)
        return src, torch.tensor([self.tgt_in], device=device), torch.ones_like(src, dtype=torch.bool)

    def read_by(self, network: Any) -> Float[Tensor, "1 tgt_len d_model"]:
        """The hidden states of one pass over the pair."""
        src, tgt_in, src_mask = self.tensors(device_of(network))
        return network.decode(tgt_in, network.encode(src, src_mask), src_mask)


def with_tensors(pair: TranslatedPair) -> PairTensors:
    """The same pair for torch."""
    return PairTensors(pair.tokenizer, pair.text, pair.translation, pair.src, pair.tgt)


def device_of(network: nn.Module) -> torch.device:
    """The device of the network's parameters."""
    return next(iter(network.parameters())).device

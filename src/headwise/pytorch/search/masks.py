"""Predictions of masked tokens by a network of torch, for evaluation and training."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from headwise.pytorch.data.masked_sequences import MaskedBatch, MaskedLineBatch


@runtime_checkable
class MaskedPredictor(Protocol):
    """A network that predicts the token at each position: `EncoderOnly`, or `QueryStream`."""

    def parameters(self) -> Iterator[torch.nn.Parameter]: ...
    def encode(self, src: Tensor, /) -> Tensor: ...  # networks that read lines also take the mask of real tokens
    def logits(self, hidden: Tensor) -> Tensor: ...


@torch.inference_mode()
def score_masks(network: MaskedPredictor, batches: Iterable[MaskedBatch | MaskedLineBatch]) -> tuple[float, int, int]:
    """The log-probability of all masked tokens, how many the network predicts right, and how many there are."""
    log_prob, right, n = 0.0, 0, 0
    device = next(network.parameters()).device
    for batch in (batch.to(device) for batch in batches):
        logits = masked_logits(network.encode, network.logits, batch)
        log_prob -= F.cross_entropy(logits.float(), batch.targets, reduction="sum").item()
        right += int((logits.argmax(-1) == batch.targets).sum())
        n += batch.n_targets
    return log_prob, right, n


def masked_logits(
    encode: Callable[..., Tensor], logits: Callable[[Tensor], Tensor], batch: MaskedBatch | MaskedLineBatch
) -> Float[Tensor, "chosen vocab"]:
    """The logits at masked positions only, because the vocabulary is large."""
    states = encode(*batch.inputs).flatten(0, 1).index_select(0, batch.positions)
    return logits(states[None])[0]

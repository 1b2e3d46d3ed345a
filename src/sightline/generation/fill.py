"""What stood where a text is masked (BERT and its relatives)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from sightline.checkpoint.vocabulary import Vocabulary
from sightline.errors import UserError


@dataclass(frozen=True)
class Filling:
    """One guess for one mask."""

    text: str  # of the piece alone
    token: int
    probability: float


@runtime_checkable
class Guesser(Protocol):
    """A network that says what stands at each place: `EncoderOnly`, or what reads as one."""

    def parameters(self) -> Iterator[torch.nn.Parameter]: ...
    def encode(self, src: Tensor, /) -> Tensor: ...
    def logits(self, hidden: Tensor) -> Tensor: ...


@torch.inference_mode()
def fill(network: Guesser, tokens: Sequence[int], mask_id: int, top: int) -> list[list[tuple[int, float]]]:
    """For each mask in `tokens` the `top` likeliest ids with their probabilities, each mask on its own.

    Raises:
        UserError: there is no mask.
    """
    masked = [i for i, token in enumerate(tokens) if token == mask_id]
    if not masked:
        raise UserError("the text has no mask to fill")
    row = torch.tensor([list(tokens)], device=next(network.parameters()).device)
    hidden = network.encode(row)[:, masked]
    best = network.logits(hidden)[0].softmax(-1, dtype=torch.float32).topk(top)
    rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [list(zip(ids, probabilities, strict=True)) for ids, probabilities in rows]


def mask_of(vocabulary: Vocabulary, named: str) -> tuple[str, int]:
    """How a mask is written, and its id; `named` is what tokenizer_config.json calls it, "" where it does not."""
    for text in (named, "[MASK]", "<mask>"):
        token = vocabulary.id_of(text) if text else None
        if token is not None:
            return text, token
    raise UserError("this model has no mask: its vocabulary knows neither [MASK] nor <mask>")

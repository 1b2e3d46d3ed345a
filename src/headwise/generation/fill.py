"""Prediction of masked tokens (BERT and its relatives)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from headwise.checkpoint.vocabulary import Vocabulary
from headwise.data.masking import MASK_NAMES, MaskedBatch, MaskedLineBatch
from headwise.errors import UserError
from headwise.generation.chat import special_token_text, tokenizer_settings
from headwise.generation.encoder_network import EncoderNetwork, softmax


@dataclass(frozen=True)
class Filling:
    """A prediction for one mask."""

    text: str  # of this token
    token: int
    probability: float


@runtime_checkable
class MaskedPredictor(Protocol):
    """A network that predicts the token at each position: `EncoderOnly`, or `QueryStream`."""

    def parameters(self) -> Iterator[torch.nn.Parameter]: ...
    def encode(self, src: Tensor, /) -> Tensor: ...  # networks that read lines also take the mask of real tokens
    def logits(self, hidden: Tensor) -> Tensor: ...


def predict_masks(
    network: EncoderNetwork, tokens: Sequence[int], mask_id: int, top: int
) -> list[list[tuple[int, float]]]:
    """For each mask in `tokens` the `top` most probable ids with their probabilities; masks are independent.

    Raises:
        UserError: there is no mask.
    """
    masked = [i for i, token in enumerate(tokens) if token == mask_id]
    if not masked:
        raise UserError("the text has no mask to fill")
    found = []
    for probabilities in softmax(network.token_logits(tokens, masked)):
        best = np.argsort(-probabilities, kind="stable")[:top]
        found.append(list(zip(best.tolist(), probabilities[best].tolist(), strict=True)))
    return found


def fillings(
    guesser: Callable[[int], EncoderNetwork], text: str, path: Path, vocabulary: Vocabulary, top: int
) -> list[list[Filling]]:
    """`Model.fill_mask`; `guesser` gives the network for the id of the mask."""
    written, mask_id = mask_of(vocabulary, special_token_text(tokenizer_settings(path), "mask_token"))
    tokens = vocabulary.encode(text)
    if mask_id not in tokens:
        raise UserError(f"the text has no mask to fill; this model's is written {written}")
    found = predict_masks(guesser(mask_id), tokens, mask_id, top)
    return [[Filling(vocabulary.decode([i]), i, probability) for i, probability in one] for one in found]


def mask_of(vocabulary: Vocabulary, named: str) -> tuple[str, int]:
    """The text of the mask token and its id; `named` is its name in tokenizer_config.json, or ""."""
    for text in (named, *MASK_NAMES):
        token = vocabulary.id_of(text) if text else None
        if token is not None:
            return text, token
    raise UserError("this model has no mask: its vocabulary knows neither [MASK] nor <mask>")


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

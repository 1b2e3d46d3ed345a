"""Prediction of masked tokens (BERT and its relatives)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headwise.errors import UserError
from headwise.models.encoding.library_encoder import EncoderNetwork, softmax
from headwise.runtime.tokenizers.special_tokens import special_token_texts
from headwise.runtime.tokenizers.vocabulary import Vocabulary
from headwise.text.prepared.masking import MASK_NAMES


@dataclass(frozen=True)
class Filling:
    """A prediction for one mask."""

    text: str  # of this token
    token: int
    probability: float


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
    written, mask_id = mask_of(vocabulary, path)
    tokens = vocabulary.encode(text)
    if mask_id not in tokens:
        raise UserError(f"the text has no mask to fill; this model's is written {written}")
    found = predict_masks(guesser(mask_id), tokens, mask_id, top)
    return [[Filling(vocabulary.decode([i]), i, probability) for i, probability in one] for one in found]


def mask_of(vocabulary: Vocabulary, folder: Path) -> tuple[str, int]:
    """The text of the mask token and its id: what the files of the tokenizer say, or one of the usual names."""
    for text in (special_token_texts(folder).get("mask_token", ""), *MASK_NAMES):
        token = vocabulary.id_of(text) if text else None
        if token is not None:
            return text, token
    raise UserError("this model has no mask: its vocabulary knows neither [MASK] nor <mask>")

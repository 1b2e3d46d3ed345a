"""A network of torch that reads texts, as a `models.encoding.library_encoder.EncoderNetwork`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor, nn

from headwise.core.transformer import DecoderOnly
from headwise.core.translate import pad_right
from headwise.models.encoding.label import BATCH_TOKENS
from headwise.pytorch.data.labelled import encoded_batches
from headwise.text.prepared.encoded import EncodedText


@dataclass(frozen=True)
class TorchEncoder:
    """A `EncoderNetwork` that pads texts to batches of similar length."""

    network: Any  # with `encode`, `logits` and `forward` as far as they are used
    pad_id: int
    batch_tokens: int = BATCH_TOKENS  # of `outputs`

    def states(
        self, texts: Sequence[Sequence[int]], batch_size: int
    ) -> Iterator[tuple[int, Float32[np.ndarray, "tokens d_model"]]]:
        """See `EncoderNetwork.states`."""
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            src, mask = (x.to(self._device) for x in pad_right([texts[i] for i in batch], self.pad_id))
            with torch.inference_mode():  # not around `yield`
                hidden = self.network.encode(src, mask).float().cpu().numpy()
            yield from ((i, states[: len(texts[i])]) for i, states in zip(batch, hidden, strict=True))

    @torch.inference_mode()
    def outputs(self, texts: Sequence[EncodedText], typed: bool) -> list[Float32[np.ndarray, "*tokens outputs"]]:
        """See `EncoderNetwork.outputs`."""
        found = dict[int, Any]()
        for chosen, batch in encoded_batches(texts, [0] * len(texts), self.batch_tokens, self.pad_id, typed):
            logits = self.network(*batch.to(self._device).inputs).float().cpu().numpy()
            for i, row in zip(chosen, logits, strict=True):
                found[i] = row[: len(texts[i])] if row.ndim > 1 else row
        return [found[i] for i in range(len(texts))]

    @torch.inference_mode()
    def token_logits(self, tokens: Sequence[int], positions: Sequence[int]) -> Float32[np.ndarray, "positions vocab"]:
        """See `EncoderNetwork.token_logits`."""
        row = torch.tensor([list(tokens)], device=self._device)
        return self.network.logits(self.network.encode(row)[:, positions])[0].float().cpu().numpy()

    @property
    def _device(self) -> torch.device:
        return next(self.network.parameters()).device


class DecoderEmbedder:
    """A decoder as a text encoder; its states do not see later tokens, so padding at the end needs no mask."""

    def __init__(self, network: DecoderOnly) -> None:
        self.network = network

    def parameters(self) -> Iterator[nn.Parameter]:
        """The parameters of the decoder."""
        return self.network.parameters()

    def encode(self, src: Tensor, src_mask: Tensor) -> Tensor:
        """The last hidden states of the decoder."""
        return self.network.decode(src)

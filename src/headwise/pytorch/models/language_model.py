"""Language models in torch: networks that the library lacks, embeddings, and inputs of the inspector.

Prompts of different lengths are padded on the left, so that all outputs start in one column; padding is masked.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headwise.contract import Hypothesis, Limits, SearchOptions, TextNetwork
from headwise.models.encoding.fill import Filling, fillings
from headwise.models.encoding.vectors import TextEmbedder, pad_id_of, text_embedder
from headwise.pytorch.checkpoint.adapters import open_tensors
from headwise.pytorch.inspect.importance import Example
from headwise.pytorch.inspect.inputs import ContinuedText
from headwise.pytorch.models.inputs import next_tokens, text_to_continue
from headwise.pytorch.models.model import ModelInTorch
from headwise.pytorch.search.captured import captured_steps
from headwise.pytorch.search.decoding import Prefilled, prefill, search, step_after_prefill
from headwise.pytorch.search.encoder import DecoderEmbedder, TorchEncoder
from headwise.pytorch.search.permutation import ContentStream, LeftToRight, QueryStream
from headwise.pytorch.search.stepwise import stream_tokens, to_torch

LOGITS = 512  # positions whose logits are computed at once: the memory of a long window, by the vocabulary


class DecoderInTorch(ModelInTorch):
    """A decoder alone in torch."""

    def observed(self, given: str) -> ContinuedText:
        """A text as the inspector reads it."""
        return text_to_continue(self.model, given, self.model.max_len)

    def example(self, given: str, target: Any) -> Example:
        """A text and the loss of its prediction."""
        return next_tokens(self.observed(given).values)

    def text_network(self, form: Any) -> TextNetwork:
        """A torch module that predicts the next token."""
        return TorchText(form)

    def embedder(self) -> TextEmbedder:
        """Turns texts into vectors."""
        return _embedder(self.model, DecoderEmbedder(self.network), self.model.config.decoder.d_model)


class XLNetInTorch:
    """An XLNet in torch."""

    def __init__(self, model: Any) -> None:
        """`model` is an `XLNetModel`."""
        self.model = model

    def text_network(self, form: Any) -> TextNetwork:
        """A torch module that predicts the next token."""
        return TorchText(LeftToRight(form))

    def fill_mask(self, text: str, top: int) -> list[list[Filling]]:
        model = self.model
        top = min(top, model.config.vocab_size)
        return fillings(
            lambda mask_id: TorchEncoder(QueryStream(model.network, mask_id), 0), text, model.path, model.tokenizer, top
        )

    def embedder(self) -> TextEmbedder:
        """Turns texts into vectors."""
        return _embedder(self.model, ContentStream(self.model.network), self.model.config.d_model)


def _embedder(model: Any, network: Any, d_model: int) -> TextEmbedder:
    texts = TorchEncoder(network, pad_id_of(model.hf_config))
    return text_embedder(texts, model.tokenizer, d_model, model.max_len, model.path, open_tensors)


@runtime_checkable
class CausalNetwork(Protocol):
    """A network that predicts the next token of a text: `DecoderOnly` or `LeftToRight`."""

    def parameters(self) -> Iterator[torch.nn.Parameter]: ...
    def start_cache(self, padding: Tensor) -> Any: ...
    def decode(self, tokens: Tensor, cache: Any = None) -> Tensor: ...
    def logits(self, hidden: Tensor) -> Tensor: ...


class TorchText:
    """A `TextNetwork` on the device and in the precision of a torch module."""

    def __init__(self, network: CausalNetwork) -> None:
        self.network = network

    @torch.inference_mode()
    def search(
        self, prompts: Sequence[Sequence[int]], limits: Limits, options: SearchOptions
    ) -> list[list[Hypothesis]]:
        """See `TextNetwork.search`."""
        step = captured_steps(self.network, self._step)
        return search(step, self._prefilled(prompts), to_torch(limits, self._device), options)

    @torch.inference_mode()
    def stream(self, prompt: Sequence[int], limits: Limits, options: SearchOptions) -> Iterator[int]:
        """See `TextNetwork.stream`."""
        step = step_after_prefill(captured_steps(self.network, self._step))
        yield from stream_tokens(step, self._prefilled([prompt]), to_torch(limits, self._device), options)

    @torch.inference_mode()
    def log_probs(self, texts: Sequence[Sequence[int]], firsts: Sequence[int]) -> list[Float[np.ndarray, " _"]]:
        """See `TextNetwork.log_probs`."""
        return [self._log_probs(text, first) for text, first in zip(texts, firsts, strict=True)]

    @property
    def _device(self) -> torch.device:
        return next(iter(self.network.parameters())).device

    def _step(self, tokens: Int[Tensor, "rows new"], cache: Any) -> Float[Tensor, "rows vocab"]:
        """A `Step`: from new tokens to the logits of the next one."""
        return self.network.logits(self.network.decode(tokens, cache)[:, -1])

    def _prefilled(self, prompts: Sequence[Sequence[int]]) -> Prefilled:
        tokens, padding = pad_left(prompts)
        return prefill(self._step, self.network.start_cache(padding.to(self._device)), tokens.to(self._device))

    def _log_probs(self, text: Sequence[int], first: int) -> Float[np.ndarray, " _"]:
        tokens, found = torch.tensor([list(text)], device=self._device), list[Tensor]()
        hidden = self.network.decode(tokens[:, :-1])[:, first - 1 :]
        for part, targets in zip(hidden.split(LOGITS, 1), tokens[:, first:].split(LOGITS, 1), strict=True):
            logits = self.network.logits(part)
            log_probs = logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
            found.append(log_probs.gather(-1, targets.unsqueeze(-1))[0, :, 0])
        return torch.cat(found).cpu().numpy()


def pad_left(
    prompts: Sequence[Sequence[int]], pad_id: int = 0
) -> tuple[Int[Tensor, "rows length"], Int[Tensor, " rows"]]:
    """Prompts as one matrix, and the padding before each; the network does not read it.

    >>> pad_left([[5, 6], [7]])
    (tensor([[5, 6],
            [0, 7]]), tensor([0, 1]))
    """
    longest = max(len(prompt) for prompt in prompts)
    rows = [[*[pad_id] * (longest - len(prompt)), *prompt] for prompt in prompts]
    return torch.tensor(rows), torch.tensor([longest - len(prompt) for prompt in prompts])

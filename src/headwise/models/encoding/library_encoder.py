"""The interface of encoders, in numpy, for embedding, classification, tagging, answers and masked tokens.

`LibraryEncoder` is the compiled library's; `torch_encoder` has that of torch.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32

from headwise.device import usable_threads
from headwise.runtime.native.encoder import CompiledEncoder
from headwise.runtime.native.threads import use_threads
from headwise.text.prepared.encoded import EncodedText, token_types

CHUNK = 4096  # tokens that one thread of the library reads at once
TokenStates = Float32[np.ndarray, "tokens d_model"]
HeadOutputs = Float32[np.ndarray, "*tokens outputs"]


@runtime_checkable
class EncoderNetwork(Protocol):
    """A network that reads texts, which are ids with their special tokens and never empty."""

    def states(self, texts: Sequence[Sequence[int]], batch_size: int) -> Iterator[tuple[int, TokenStates]]:
        """The last hidden states of each text, with its index, in any order; torch reads `batch_size` at once."""
        ...

    def outputs(self, texts: Sequence[EncodedText], typed: bool) -> list[HeadOutputs]:
        """The output of the head for each text, (outputs,) or (tokens, outputs); `typed` as for `collate_encoded`."""
        ...

    def token_logits(self, tokens: Sequence[int], positions: Sequence[int]) -> Float32[np.ndarray, "positions vocab"]:
        """The logits of the masked tokens at some positions of a text."""
        ...


@dataclass(frozen=True)
class LibraryEncoder:
    """A `EncoderNetwork` in the compiled library; texts are read in `usable_threads` threads."""

    encoder: CompiledEncoder
    pooling: str  # state that a head for texts classifies: "first", or "mean" of all
    per_token: bool  # whether the head is for tokens

    def states(self, texts: Sequence[Sequence[int]], batch_size: int) -> Iterator[tuple[int, TokenStates]]:
        """See `EncoderNetwork.states`."""
        return self._read(texts, None, lambda states: states)

    def outputs(self, texts: Sequence[EncodedText], typed: bool) -> list[HeadOutputs]:
        """See `EncoderNetwork.outputs`."""
        types = [token_types(text) for text in texts] if typed else None
        found = dict(self._read([text.ids for text in texts], types, self._output))
        return [found[i] for i in range(len(texts))]

    def token_logits(self, tokens: Sequence[int], positions: Sequence[int]) -> Float32[np.ndarray, "positions vocab"]:
        """See `EncoderNetwork.token_logits`."""
        return self.encoder.head(self.encoder.states([tokens])[positions])

    def _output(self, states: TokenStates) -> HeadOutputs:
        if self.per_token:
            return self.encoder.head(states)
        return self.encoder.head(states[:1] if self.pooling == "first" else states.mean(0, keepdims=True))[0]

    def _read(
        self, texts: Sequence[Any], types: Sequence[Any] | None, output: Callable[[TokenStates], Any]
    ) -> Iterator[tuple[int, Any]]:
        """The result of `output` for the states of each text."""

        def read(chunk: list[int]) -> list[tuple[int, Any]]:
            kinds = None if types is None else [types[i] for i in chunk]
            states = self.encoder.states([texts[i] for i in chunk], kinds)
            ends = np.cumsum([len(texts[i]) for i in chunk])[:-1]
            return [(i, output(part)) for i, part in zip(chunk, np.split(states, ends), strict=True)]

        threads = usable_threads()
        chunks = list(_chunks([len(text) for text in texts], threads))
        if len(chunks) < 2 or threads < 2:
            use_threads(threads)  # which share the products of a single text
            for chunk in chunks:
                yield from read(chunk)
            return
        with ThreadPoolExecutor(threads) as pool:
            waiting = iter(chunks)
            while group := list(islice(waiting, 4 * threads)):
                for found in pool.map(read, group):
                    yield from found


def softmax(logits: Float32[np.ndarray, "*any outputs"]) -> Float32[np.ndarray, "*any outputs"]:
    """Probabilities along the last dimension."""
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def sigmoid(logits: Float32[np.ndarray, "*any"]) -> Float32[np.ndarray, "*any"]:
    """1 / (1 + e^-x), without overflow."""
    return np.float32(0.5) * (1 + np.tanh(np.float32(0.5) * logits))


def _chunks(lengths: Sequence[int], threads: int) -> Iterator[list[int]]:
    """Indices of texts that are read together, in similar shares for all threads; longer texts come first.

    >>> [*_chunks([3, 9, 4, 1], threads=2)]
    [[1], [2, 0, 3]]
    """
    room = min(CHUNK, -(-sum(lengths) // threads))
    chunk, filled = list[int](), 0
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if chunk and filled + lengths[i] > room:
            yield chunk
            chunk, filled = [], 0
        chunk.append(i)
        filled += lengths[i]
    if chunk:
        yield chunk

"""The interface of networks for the inspector: they read given pairs, without a search.

`LibraryReader` reads with the compiled library, without torch; `torch_reader.TorchReader` with any torch network.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from headwise.config.settings import SearchSettings
from headwise.runtime.native.network import CompiledNetwork
from headwise.runtime.native.reading import LOGITS_AT_ONCE, forced_cross_attention, forced_log_probs, read_pair_of_ids
from headwise.runtime.search.engine import run_in_threads
from headwise.runtime.search.request import batches
from headwise.view.pair import TranslatedPair
from headwise.view.record import Candidate, Position

STACKS = ("encoder", "decoder", "cross")  # self-attention of both stacks, and attention to the source
AT_ONCE = SearchSettings(batch_tokens=1024, beam_size=1)  # tokens that a thread reads together
TOO_LARGE = "one pair does not fit into memory: shorten it"
Ids = Sequence[int]
HeadCounts = Mapping[str, Sequence[int]]  # of each layer, by stack
HeadWeights = Float[np.ndarray, "heads queries keys"]
WeightsByLayer = Mapping[str, Mapping[int, HeadWeights]]  # by stack and layer


@runtime_checkable
class PairReader(Protocol):
    """A network of a translation model. Sources have their end token, targets start and end token."""

    @property
    def heads(self) -> HeadCounts: ...
    def log_probs(self, pairs: Sequence[tuple[Ids, Ids]], batch_tokens: int) -> list[list[float]]: ...
    def cross_attention(
        self, pairs: Sequence[tuple[Ids, Ids]], layers: Sequence[int], batch_tokens: int
    ) -> Iterator[tuple[int, Mapping[int, HeadWeights]]]: ...  # the row of each pair, in any order
    def attention(self, pair: TranslatedPair, chosen: Mapping[str, Sequence[int]]) -> WeightsByLayer: ...
    def predictions(self, pair: TranslatedPair, top: int) -> list[Position]: ...


class LibraryReader:
    """Reads with the compiled library, in several threads."""

    def __init__(self, network: CompiledNetwork) -> None:
        self._network = network

    @property
    def heads(self) -> HeadCounts:
        """The number of heads of each layer, by stack."""
        return self._network.heads

    def log_probs(self, pairs: Sequence[tuple[Ids, Ids]], batch_tokens: int) -> list[list[float]]:
        """The log-probability of each token of each target after the first."""
        found: list[list[float]] = [[] for _ in pairs]
        for rows, values in self._shared(pairs, lambda some: forced_log_probs(self._network, some)):
            for row, one in zip(rows, values, strict=True):
                found[row] = one.tolist()
        return found

    def cross_attention(
        self, pairs: Sequence[tuple[Ids, Ids]], layers: Sequence[int], batch_tokens: int
    ) -> Iterator[tuple[int, Mapping[int, HeadWeights]]]:
        """The weights of attention to the source; the last token of a target predicts nothing and is not read."""

        def read(some: Sequence[tuple[Ids, Ids]]) -> list[dict[int, HeadWeights]]:
            return forced_cross_attention(self._network, [(src, tgt[:-1]) for src, tgt in some], layers)

        for rows, values in self._shared(pairs, read):
            yield from zip(rows, values, strict=True)

    def attention(self, pair: TranslatedPair, chosen: Mapping[str, Sequence[int]]) -> WeightsByLayer:
        """The weights of the chosen layers of each stack for one pair."""
        stacks = [stack for stack, layers in chosen.items() if layers]
        reading = read_pair_of_ids(self._network, pair.src, pair.tgt_in, stacks)
        return {stack: {layer: getattr(reading, stack)[layer] for layer in layers} for stack, layers in chosen.items()}

    def predictions(self, pair: TranslatedPair, top: int) -> list[Position]:
        """The most probable tokens at each position, after each layer (logit lens)."""
        reading = read_pair_of_ids(self._network, pair.src, pair.tgt_in, ["residual", "states"])
        layers = [self._candidates(states, top, pair) for states in reading.states]
        norms = np.linalg.norm(reading.residual, axis=-1)
        return [
            Position(piece, layers[-1][i], [layer[i] for layer in layers], norms[:, i].tolist())
            for i, piece in enumerate(pair.written)
        ]

    def _candidates(
        self, states: Float[np.ndarray, "target d_model"], top: int, pair: TranslatedPair
    ) -> list[list[Candidate]]:
        """The most probable tokens of each position, best first; ties by the lower id."""
        output = self._network.output
        step, found = max(1, LOGITS_AT_ONCE // output.d_out), []
        for start in range(0, len(states), step):
            logits = output(states[start : start + step]).astype(np.float64)
            most = logits.max(1, keepdims=True)
            log_probs = logits - most - np.log(np.exp(logits - most).sum(1, keepdims=True))
            ids = np.argsort(-log_probs, axis=1, kind="stable")[:, :top]
            values = np.take_along_axis(log_probs, ids, 1)
            for row, scores in zip(ids.tolist(), values.tolist(), strict=True):
                found.append([Candidate(*one) for one in zip(pair.names(row), scores, strict=True)])
        return found

    def _shared(self, pairs: Sequence[tuple[Ids, Ids]], read: Any) -> Iterator[tuple[list[int], Any]]:
        """Groups of pairs of similar length and what `read` makes of them, in several threads."""
        waiting = list(batches([max(len(src), len(tgt)) for src, tgt in pairs], AT_ONCE))
        stop = np.zeros(1, np.int32)
        return run_in_threads(lambda rows: read([pairs[row] for row in rows]), waiting, stop, TOO_LARGE)

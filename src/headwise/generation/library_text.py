"""Causal language models in the compiled library, without torch."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float32
from numpy.typing import NDArray

from headwise.contract import Hypothesis, SearchOptions
from headwise.decode.cancellation import set_when_cancelled
from headwise.decode.engine import greedy_steps, run_in_threads
from headwise.decode.request import Bounds
from headwise.device import usable_threads
from headwise.native.network import CompiledNetwork
from headwise.native.reading import token_log_probs
from headwise.native.search import Search

ADVICE = "use shorter prompts, fewer hypotheses or fewer new tokens"
Result = TypeVar("Result")


class LibraryText:
    """A `TextNetwork` whose prompts or texts are shared among threads."""

    def __init__(self, network: CompiledNetwork) -> None:
        self.network = network

    def search(
        self, prompts: Sequence[Sequence[int]], limits: Bounds, options: SearchOptions
    ) -> list[list[Hypothesis]]:
        """See `TextNetwork.search`."""
        options = _without_start(options)

        def search_some(batch: list[int], stop: NDArray[np.int32]) -> list[list[Hypothesis]]:
            return self.network.search([prompts[i] for i in batch], _limits_of(limits, batch), options, None, stop)

        return _in_threads(len(prompts), search_some)

    def stream(self, prompt: Sequence[int], limits: Bounds, options: SearchOptions) -> Iterator[int]:
        """See `TextNetwork.stream`."""
        options = _without_start(options)

        def begin(batch: list[int], stop: NDArray[np.int32]) -> list[Search]:
            return [self.network.begin([prompt], limits, options, None, stop)]

        for step in greedy_steps(_in_threads(1, begin)[0]):
            if step.token in (options.eos_id, *options.other_ends):
                return
            yield step.token

    def log_probs(self, texts: Sequence[Sequence[int]], firsts: Sequence[int]) -> list[Float32[np.ndarray, " _"]]:
        """See `TextNetwork.log_probs`."""

        def read_some(batch: list[int], stop: NDArray[np.int32]) -> list[Any]:
            return [token_log_probs(self.network, texts[i], firsts[i], stop) for i in batch]

        return _in_threads(len(texts), read_some)


def _without_start(options: SearchOptions) -> SearchOptions:
    """A prompt takes the place of the start token, which is not part of n-grams either."""
    return replace(options, bos_id=0, bos_in_ngrams=False)


def _limits_of(limits: Bounds, batch: Sequence[int]) -> Bounds:
    streams = None if limits.streams is None else limits.streams[batch]
    context = None if limits.context is None else limits.context[batch]
    return Bounds(limits.min_length[batch], limits.max_length[batch], limits.prefix[batch], streams, context=context)


def _in_threads(count: int, run: Callable[[list[int], NDArray[np.int32]], list[Result]]) -> list[Result]:
    """The results of `run` for `count` inputs, in order; each thread gets every n-th of them."""
    stop, found = np.zeros(1, np.int32), dict[int, Result]()
    threads = min(usable_threads(), count)
    shares = [list(range(first, count, threads)) for first in range(threads)]
    results = run_in_threads(lambda batch: run(batch, stop), shares, stop, ADVICE)
    with set_when_cancelled(stop), closing(results) as finished:
        for batch, of_batch in finished:
            found.update(zip(batch, of_batch, strict=True))
    stop[0] = 0  # for a search that has only begun; the pool's end has set it
    return [found[i] for i in range(count)]

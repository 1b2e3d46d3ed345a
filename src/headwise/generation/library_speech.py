"""Whisper in the compiled library, without torch."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from jaxtyping import Float32

from headwise.contract import Hypothesis, SearchOptions
from headwise.decode.cancellation import set_when_cancelled
from headwise.decode.request import Bounds
from headwise.device import usable_threads
from headwise.native.arrays import Ints
from headwise.native.network import Decoding
from headwise.native.search import Search
from headwise.native.speech import CompiledSpeech
from headwise.native.threads import use_threads

Found = TypeVar("Found")


class LibrarySpeech:
    """A `SpeechNetwork` in the compiled library; of a recording it encodes and searches one window at a time."""

    def __init__(self, network: CompiledSpeech) -> None:
        self.network = network
        self._stop = np.zeros(1, np.int32)

    def encode(self, mel: Float32[np.ndarray, "n_mels frames"]) -> Decoding:
        """See `SpeechNetwork.encode`."""
        return _interruptible(self._stop, lambda: self.network.encode(mel, self._stop))

    def search(
        self, memory: Decoding, prompt: Sequence[int], limits: Bounds, options: SearchOptions
    ) -> list[Hypothesis]:
        """See `SpeechNetwork.search`."""

        def run() -> list[Hypothesis]:
            memory.read_prompt(prompt)
            return Search([memory], options, limits).run()[0]

        return _interruptible(self._stop, run)

    def logits(self, memory: Decoding, prompt: Sequence[int]) -> Float32[np.ndarray, " vocab"]:
        """See `SpeechNetwork.logits`."""
        return self.network.output(memory.read_prompt(prompt)[-1:])[0]


def _interruptible(stop: Ints, run: Callable[[], Found]) -> Found:
    """The result of a function that ends soon after `stop` becomes non-zero: by Ctrl-C, or a cancellation.

    Its products are shared among all usable threads.
    """

    def run_with_threads() -> Found:
        use_threads(usable_threads())
        return run()

    with set_when_cancelled(stop), ThreadPoolExecutor(1) as pool:
        try:
            return pool.submit(run_with_threads).result()
        except BaseException:
            stop[0] = 1
            raise
        finally:
            pool.shutdown()
            stop[0] = 0

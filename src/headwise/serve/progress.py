"""The progress of the translation of a document, and queueing of its sentences that leaves room for others.

See `jobs` for jobs that have documents.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headwise.documents.segments import SentenceRequest, SentenceTranslation
from headwise.serve.batching import QueueFull
from headwise.serve.models import PairModel, SentenceOptions

MOST_QUEUED = 200  # sentences of a job in the queue at the same time, to leave room for requests
MAX_PAUSE = 2.0  # seconds until a job tries again when the queue is full


@dataclass
class JobProgress:
    """Counts the sentences of one document."""

    is_translating: bool = False  # the document has been read
    total: int = 0  # sentences to translate
    done: int = 0  # translated ones; never decreases, even if a sentence needs another method
    _before: int = 0  # translated before the current request
    _requested: int = 0  # sentences of the request
    _answered: int = 0  # of the different ones among them that were not known

    @property
    def percent(self) -> int:
        """The share of translated sentences, rounded down; 0 before they are counted."""
        return 100 * self.done // self.total if self.total else 0

    def request(self, request: SentenceRequest | None) -> None:
        """Count the sentences of the next request; None: all are translated."""
        self.is_translating = True
        self._requested = len(request.texts) if request else 0
        left = self._requested + request.later if request else 0
        self.total = self.total or left
        self._before = self.total - left
        self.done = max(self.done, self._before)

    async def submit(
        self, model: PairModel, texts: Sequence[str], options: SentenceOptions, answered: Callable[[], None]
    ) -> list[SentenceTranslation]:
        """`translate_sentences` for the different texts of a request, in parts; waits while the queue is full."""
        found: list[SentenceTranslation] = []
        self._answered = 0

        def count() -> None:
            self._answered += 1
            self.done = max(self.done, self._before + self._requested * self._answered // len(texts))
            answered()

        size = max(1, min(MOST_QUEUED, model.most_waiting // 4))
        for start in range(0, len(texts), size):
            found += await submit_when_free(model, texts[start : start + size], options, count)
        return found


async def submit_when_free(
    model: PairModel,
    texts: Sequence[str],
    options: SentenceOptions,
    answered: Callable[[], None] = lambda: None,
) -> list[SentenceTranslation]:
    """`translate_sentences`, repeated while the queue is full."""
    while True:
        try:
            return await model.ask(texts, options, answered)
        except QueueFull as error:
            await asyncio.sleep(min(error.seconds, MAX_PAUSE))

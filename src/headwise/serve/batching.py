"""Batching of the sentences of all requests for one model: queueing, fair turns, and batches.

The model works in one thread, a batch at a time; meanwhile sentences gather on the event loop. Requests get equal
shares of tokens (start-time fair queueing, Goyal et al. 1996: each sentence is tagged with the tokens that its request
has had, and the lowest tag is next), so that a long document delays a short request by at most a batch. Sentences of
cancelled requests leave the queue untranslated, and a batch that nobody waits for any more is cancelled. See `routes`
for HTTP and `models` for the models.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

from headwise.contract import SearchCancelled
from headwise.errors import UserError
from headwise.runtime.search.cancellation import Cancellation, check_cancelled
from headwise.serve.cache import SentenceCache

DecodeSentences = Callable[[list[str], Any], list[Any]]  # texts and options -> a result for each
CountTokens = Callable[[Sequence[str]], list[int]]  # texts -> the source tokens of each


class QueueFull(UserError):
    """Too many sentences are queued."""

    def __init__(self, waiting: int, seconds: int) -> None:
        super().__init__(f"Slowdown: {waiting} sentences are waiting; try again in {seconds} s")
        self.seconds = seconds


@dataclass(frozen=True)
class BatchSettings:
    """When a batch starts, and its size."""

    wait: float = 0.002  # seconds that the first sentence waits for others after a pause
    batch_tokens: int = 4096  # source tokens times hypotheses of a batch
    most_waiting: int = 5000  # queued sentences; a request may have more if the queue is empty
    idle: float = 0.0  # idle seconds before `rest` is called; 0 = never
    cached: int = 0  # sentences in the cache


@dataclass(eq=False)
class QueuedSentence:
    """A sentence, and the future of its translation."""

    text: str
    answer: asyncio.Future[Any]
    size: int = 0  # source tokens times hypotheses


@dataclass(eq=False)
class QueuedRequest:
    """The sentences of a request that are still queued, and its time of arrival."""

    options: Hashable  # the sentences of a batch share these
    waiting: deque[QueuedSentence]
    tag: int  # tokens that it has had, counted from the tag of the sentence that was next when it arrived
    number: int
    arrived: float = field(default_factory=time.monotonic)


@dataclass(eq=False)
class RunningBatch:
    """A batch that is being decoded, and what cancels it."""

    sentences: list[QueuedSentence]
    cancellation: Cancellation = field(default_factory=Cancellation)

    def cancel_if_unwanted(self) -> None:
        """Stop decoding if no request waits for any of the sentences."""
        if all(one.answer.done() for one in self.sentences):
            self.cancellation.cancel()


@dataclass
class Throughput:
    """Counts of the work done so far."""

    batches: int = 0
    sentences: int = 0
    seconds_per_sentence: float = 0.01  # moving average of the model thread


class Batcher:
    """The queue of one model; create it on an event loop, and close it."""

    def __init__(
        self,
        decode: DecodeSentences,
        batching: BatchSettings,
        done: Callable[[int, float], None] = lambda sentences, seconds: None,
        rest: Callable[[], None] = lambda: None,
        cache: SentenceCache | None = None,
        count_tokens: CountTokens | None = None,
    ) -> None:
        """`decode` and `rest` are called in the thread of the model, `done` after every batch.

        `count_tokens` is called in other threads; without it, tokens are estimated.
        """
        self._decode, self._settings, self._done, self._rest = decode, batching, done, rest
        self._cache = SentenceCache(0) if cache is None else cache
        self._count_tokens = count_tokens
        self._queue: list[QueuedRequest] = []
        self._tag, self._numbers = 0, count()
        self._running = RunningBatch([])
        self._arrived, self._full = asyncio.Event(), asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "translating")
        self._loop = asyncio.create_task(self._serve())
        self.throughput = Throughput()

    @property
    def waiting(self) -> int:
        """The number of queued sentences."""
        return sum(len(request.waiting) for request in self._queue)

    @property
    def most_waiting(self) -> int:
        """The number of queued sentences beyond which new requests are rejected."""
        return self._settings.most_waiting

    async def answers(self, texts: Sequence[str], options: Hashable, hypotheses: int = 1) -> AsyncGenerator[Any, None]:
        """The results of texts in order, each as soon as it is ready.

        Close the generator (`contextlib.aclosing`) when leaving early, to cancel the rest.

        Raises:
            QueueFull: too many sentences are queued.
            UserError: raised by `decode` for these texts.
        """
        loop = asyncio.get_running_loop()
        sentences = [QueuedSentence(text, loop.create_future()) for text in texts]
        for one in sentences:
            if (cached := self._cache.get(one.text, options)) is not None:
                one.answer.set_result(cached)
        new = [one for one in sentences if not one.answer.done()]
        await self._measure(new, hypotheses)
        request = self._enter(new, options)
        try:
            for one in sentences:
                yield await one.answer
        finally:
            self._leave(request, sentences)

    async def ask(
        self, texts: Sequence[str], options: Hashable, hypotheses: int = 1, answered: Callable[[], None] = lambda: None
    ) -> list[Any]:
        """All results at once; `answered` is called for each as soon as it and those before it are ready."""
        found = []
        async with aclosing(self.answers(texts, options, hypotheses)) as answers:
            async for answer in answers:
                found.append(answer)
                answered()
        return found

    async def close(self) -> None:
        """Cancel all requests, also those that are being decoded."""
        self._loop.cancel()
        with suppress(asyncio.CancelledError):
            await self._loop
        for request in self._queue:
            for one in request.waiting:
                one.answer.cancel()
        self._running.cancellation.cancel()
        await asyncio.to_thread(self._thread.shutdown)

    async def _measure(self, sentences: Sequence[QueuedSentence], hypotheses: int) -> None:
        """Set the sizes of sentences; `QueueFull` before their tokens are counted."""
        self._check_room(len(sentences))
        texts = [one.text for one in sentences]
        count_tokens = self._count_tokens
        counts = await asyncio.to_thread(count_tokens, texts) if count_tokens and texts else estimate_tokens(texts)
        for one, tokens in zip(sentences, counts, strict=True):
            one.size = tokens * hypotheses

    def _check_room(self, sentences: int) -> None:
        waiting = self.waiting
        if waiting and sentences and waiting + sentences > self._settings.most_waiting:
            raise QueueFull(waiting, math.ceil(waiting * self.throughput.seconds_per_sentence) or 1)

    def _enter(self, sentences: Sequence[QueuedSentence], options: Hashable) -> QueuedRequest:
        self._check_room(len(sentences))
        request = QueuedRequest(options, deque(sentences), self._tag, next(self._numbers))
        if request.waiting:
            self._queue.append(request)
            self._arrived.set()
            if self._is_full():
                self._full.set()
        return request

    def _leave(self, request: QueuedRequest, sentences: Sequence[QueuedSentence]) -> None:
        request.waiting.clear()
        with suppress(ValueError):
            self._queue.remove(request)
        for one in sentences:
            if not one.answer.cancel() and not one.answer.cancelled():
                one.answer.exception()  # retrieved, to avoid a warning of asyncio
        self._running.cancel_if_unwanted()

    def _is_full(self) -> bool:
        size = 0
        for request in self._queue:
            size += sum(one.size for one in request.waiting)
            if size >= self._settings.batch_tokens:
                return True
        return False

    async def _serve(self) -> None:
        while True:
            await self._arrival()
            await self._gather()
            batch, options = self._next()
            if batch:
                await self._run(batch, options)

    async def _arrival(self) -> None:
        """Wait for a request; unload the model when idle for too long."""
        if not self._queue:
            self._arrived.clear()
            try:
                async with asyncio.timeout(self._settings.idle or None):
                    await self._arrived.wait()
            except TimeoutError:
                await asyncio.get_running_loop().run_in_executor(self._thread, self._rest)
                self._cache.clear()
                await self._arrived.wait()

    async def _gather(self) -> None:
        """Wait for further requests: after a pause, the first one waits for others."""
        if self._queue and not self._is_full():
            self._full.clear()
            rest = self._queue[0].arrived + self._settings.wait - time.monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(rest, 0)):
                    await self._full.wait()

    def _next(self) -> tuple[list[QueuedSentence], Hashable]:
        """A batch: the sentences with the lowest tags, as far as options match the first and there is room."""
        batch: list[QueuedSentence] = []
        if not self._queue:
            return batch, None
        options, size = min(self._queue, key=lambda one: (one.tag, one.number)).options, 0
        heap = [(one.tag, one.number, one) for one in self._queue if one.options == options]
        heapify(heap)
        while heap:
            tag, number, request = heappop(heap)
            if batch and size + request.waiting[0].size > self._settings.batch_tokens:
                break
            batch.append(request.waiting.popleft())
            size += batch[-1].size
            self._tag, request.tag = tag, tag + batch[-1].size
            if request.waiting:
                heappush(heap, (request.tag, number, request))
        self._queue = [one for one in self._queue if one.waiting]
        return batch, options

    async def _run(self, batch: list[QueuedSentence], options: Hashable) -> None:
        loop, started = asyncio.get_running_loop(), time.monotonic()
        running = self._running = RunningBatch(batch)
        running.cancel_if_unwanted()
        try:
            results = await loop.run_in_executor(self._thread, self._decode_batch, running, options)
        except SearchCancelled:
            return
        except Exception as error:
            if len(batch) > 1:  # one text may be the cause: retry each alone
                for one in batch:
                    await self._run([one], options)
            elif not batch[0].answer.done():
                batch[0].answer.set_exception(error)
            return
        for one, answer in zip(batch, results, strict=True):
            self._cache.put(one.text, options, answer)
            if not one.answer.done():
                one.answer.set_result(answer)
        self._count(batch, time.monotonic() - started)

    def _decode_batch(self, batch: RunningBatch, options: Hashable) -> list[Any]:
        with batch.cancellation.context():
            check_cancelled()
            return self._decode([one.text for one in batch.sentences], options)

    def _count(self, batch: list[QueuedSentence], seconds: float) -> None:
        stats = self.throughput
        stats.batches, stats.sentences = stats.batches + 1, stats.sentences + len(batch)
        stats.seconds_per_sentence += 0.1 * (seconds / len(batch) - stats.seconds_per_sentence)
        self._done(len(batch), seconds)


def estimate_tokens(texts: Sequence[str]) -> list[int]:
    """A rough number of tokens with EOS of each text, while the model and its tokenizer are not loaded.

    >>> estimate_tokens(["A dog runs."])
    [3]
    """
    return [len(text.encode("utf-8", errors="replace")) // 4 + 1 for text in texts]

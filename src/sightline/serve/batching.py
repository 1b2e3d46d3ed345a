"""Sentences of all requests in batches for one model: who waits, whose turn it is, what is computed together.

The model works in one thread, a batch at a time; meanwhile further sentences gather on the event loop. Requests take
turns sentence by sentence, so that a long document does not keep a short request waiting for more than a batch. Who no
longer wants an answer leaves the line: what has not been begun for him is never computed. Not here: HTTP, and models.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any

from sightline.errors import UserError

DecodeSentences = Callable[[list[str], Any], list[Any]]  # texts and what was asked of them -> an answer for each


class QueueFull(UserError):
    """More sentences are waiting than one is ready to hold."""

    def __init__(self, waiting: int, seconds: int) -> None:
        super().__init__(f"Slowdown: {waiting} sentences are waiting already; try again in {seconds} s")
        self.seconds = seconds


@dataclass(frozen=True)
class BatchSettings:
    """When a batch begins, and how large it is."""

    wait: float = 0.002  # seconds the first sentence waits for others while the model has nothing to do
    batch_tokens: int = 4096  # source pieces times hypotheses of a batch, roughly
    most_waiting: int = 5000  # sentences in line; a single request may be longer where nobody else waits
    idle: float = 0.0  # seconds without work after which `rest` is called; 0 is never


@dataclass(eq=False)
class QueuedSentence:
    """One sentence, and where its answer arrives."""

    text: str
    size: int  # roughly, source pieces times hypotheses
    answer: asyncio.Future[Any]


@dataclass(eq=False)
class QueuedRequest:
    """One request: what it still waits for, and when it came."""

    options: Hashable  # sentences that are decoded together must agree in these
    waiting: deque[QueuedSentence]
    arrived: float = field(default_factory=time.monotonic)


@dataclass
class Throughput:
    """What has been done so far, for whoever counts."""

    batches: int = 0
    sentences: int = 0
    seconds_per_sentence: float = 0.01  # lately; of one model's thread


class Batcher:
    """One model's line. To be made and used on one event loop, and closed in the end."""

    def __init__(
        self,
        decode: DecodeSentences,
        pace: BatchSettings,
        done: Callable[[int, float], None] = lambda sentences, seconds: None,
        rest: Callable[[], None] = lambda: None,
    ) -> None:
        """`decode` and `rest` are called in a thread of their own, `done` after every batch."""
        self._decode, self._pace, self._done, self._rest = decode, pace, done, rest
        self._line: deque[QueuedRequest] = deque()
        self._arrived, self._full = asyncio.Event(), asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "translating")
        self._loop = asyncio.create_task(self._serve())
        self.work = Throughput()

    @property
    def waiting(self) -> int:
        """Sentences in line."""
        return sum(len(customer.waiting) for customer in self._line)

    async def answers(self, texts: Sequence[str], options: Hashable, hypotheses: int = 1) -> AsyncGenerator[Any, None]:
        """An answer for each text, in their order, as soon as it is there.

        To be closed (`contextlib.aclosing`) by whoever may leave early, so that the rest is not computed.

        Raises:
            Busy: too many sentences are in line.
            UserError: what `decode` raises of these texts.
        """
        customer = self._enter(texts, options, hypotheses)
        sentences = list(customer.waiting)
        try:
            for one in sentences:
                yield await one.answer
        finally:
            self._leave(customer, sentences)

    async def ask(self, texts: Sequence[str], options: Hashable, hypotheses: int = 1) -> list[Any]:
        """All answers at once."""
        async with aclosing(self.answers(texts, options, hypotheses)) as answers:
            return [answer async for answer in answers]

    async def close(self) -> None:
        """End after the batch that is being computed; whoever still waits is told."""
        self._loop.cancel()
        with suppress(asyncio.CancelledError):
            await self._loop
        for customer in self._line:
            for one in customer.waiting:
                one.answer.cancel()
        await asyncio.to_thread(self._thread.shutdown)

    def _enter(self, texts: Sequence[str], options: Hashable, hypotheses: int) -> QueuedRequest:
        loop, waiting = asyncio.get_running_loop(), self.waiting
        if waiting and waiting + len(texts) > self._pace.most_waiting:
            raise QueueFull(waiting, math.ceil(waiting * self.work.seconds_per_sentence) or 1)
        sentences = (QueuedSentence(text, estimate_tokens(text) * hypotheses, loop.create_future()) for text in texts)
        customer = QueuedRequest(options, deque(sentences))
        if customer.waiting:
            self._line.append(customer)
            self._arrived.set()
            if self._is_full():
                self._full.set()
        return customer

    def _leave(self, customer: QueuedRequest, sentences: Sequence[QueuedSentence]) -> None:
        customer.waiting.clear()
        with suppress(ValueError):
            self._line.remove(customer)
        for one in sentences:
            if not one.answer.cancel() and not one.answer.cancelled():
                one.answer.exception()  # looked at, or asyncio would complain that nobody did

    def _is_full(self) -> bool:
        size = 0
        for customer in self._line:
            size += sum(one.size for one in customer.waiting)
            if size >= self._pace.batch_tokens:
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
        """Until somebody is in line; the model rests when that takes long."""
        if not self._line:
            self._arrived.clear()
            try:
                async with asyncio.timeout(self._pace.idle or None):
                    await self._arrived.wait()
            except TimeoutError:
                await asyncio.get_running_loop().run_in_executor(self._thread, self._rest)
                await self._arrived.wait()

    async def _gather(self) -> None:
        """What came while a batch was computed has waited long enough; the first after a pause waits for others."""
        if self._line and not self._is_full():
            self._full.clear()
            rest = self._line[0].arrived + self._pace.wait - time.monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(rest, 0)):
                    await self._full.wait()

    def _next(self) -> tuple[list[QueuedSentence], Hashable]:
        """A sentence of each request in turn, as long as there is room; of those that ask for the same as the first."""
        batch: list[QueuedSentence] = []
        if not self._line:
            return batch, None
        options, size, others = self._line[0].options, 0, []
        while self._line:
            customer = self._line.popleft()
            if customer.options != options:
                others.append(customer)
                continue
            if batch and size + customer.waiting[0].size > self._pace.batch_tokens:
                self._line.appendleft(customer)
                break
            batch.append(customer.waiting.popleft())
            size += batch[-1].size
            if customer.waiting:
                self._line.append(customer)
        self._line.extendleft(reversed(others))  # whose turn is next
        return batch, options

    async def _run(self, batch: list[QueuedSentence], options: Hashable) -> None:
        loop, started = asyncio.get_running_loop(), time.monotonic()
        try:
            found = await loop.run_in_executor(self._thread, self._decode, [one.text for one in batch], options)
        except Exception as error:
            if len(batch) > 1:  # the fault may be one text's, and others are not to suffer for it
                for one in batch:
                    await self._run([one], options)
            elif not batch[0].answer.done():
                batch[0].answer.set_exception(error)
            return
        for one, answer in zip(batch, found, strict=True):
            if not one.answer.done():
                one.answer.set_result(answer)
        self._count(batch, time.monotonic() - started)

    def _count(self, batch: list[QueuedSentence], seconds: float) -> None:
        work = self.work
        work.batches, work.sentences = work.batches + 1, work.sentences + len(batch)
        work.seconds_per_sentence += 0.1 * (seconds / len(batch) - work.seconds_per_sentence)
        self._done(len(batch), seconds)


def estimate_tokens(text: str) -> int:
    """Pieces of a text, roughly, and its end mark: no tokenizer is asked, for the model may not be loaded.

    >>> estimate_tokens("A dog runs.")
    3
    """
    return len(text.encode("utf-8", errors="replace")) // 4 + 1

"""The line before a model, without a model: whose answer is whose, whose turn it is, and who leaves."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from threading import Event
from typing import Any

import pytest

from headwise.errors import UserError
from headwise.runtime.search.cancellation import check_cancelled
from headwise.serve.batching import Batcher, BatchSettings, QueueFull
from headwise.serve.cache import MOST_CHARACTERS, SentenceCache


class Echo:
    """Answers each text with itself, when it is let; keeps what was computed together."""

    def __init__(self, is_let: bool = True) -> None:
        self.go, self.batches = Event(), list[list[str]]()
        if is_let:
            self.go.set()

    def __call__(self, texts: list[str], options: Any) -> list[Any]:
        self.batches.append(texts)
        self.go.wait()
        if "wrong" in texts:
            raise UserError("wrong")
        return [(text, options) for text in texts]


def run(work: Callable[[Batcher, Any], Awaitable[None]], echo: Echo, batching: BatchSettings, **more: Any) -> None:
    async def main() -> None:
        batcher = Batcher(echo, batching, **more)
        try:
            await work(batcher, echo)
        finally:
            echo.go.set()
            await batcher.close()

    asyncio.run(main())


async def begun(echo: Echo, batches: int) -> None:
    while len(echo.batches) < batches:
        await asyncio.sleep(0.001)


def test_every_answer_finds_its_question() -> None:
    async def work(batcher: Batcher, echo: Echo) -> None:
        asked = [[f"{number} {i}" for i in range(number % 7)] for number in range(300)]
        found = await asyncio.gather(*(batcher.ask(texts, number % 3) for number, texts in enumerate(asked)))
        assert found == [[(text, number % 3) for text in texts] for number, texts in enumerate(asked)]
        assert batcher.waiting == 0 and len(echo.batches) < 100, "they were computed together"

    run(work, Echo(), BatchSettings(batch_tokens=100))


def test_a_short_request_does_not_wait_for_a_long_document() -> None:
    async def work(batcher: Batcher, echo: Echo) -> None:
        long = asyncio.create_task(batcher.ask([f"long {i}" for i in range(500)], None))
        await begun(echo, 1)
        short = asyncio.create_task(batcher.ask(["short"], None))
        await asyncio.sleep(0)
        echo.go.set()
        await short
        assert [any("short" in batch for batch in echo.batches[:n]) for n in (1, 2)] == [False, True]
        assert not long.done() and len(await long) == 500

    run(work, Echo(is_let=False), BatchSettings(batch_tokens=20))


def test_what_nobody_waits_for_any_more_is_not_computed() -> None:
    async def work(batcher: Batcher, echo: Echo) -> None:
        leaving = asyncio.create_task(batcher.ask([f"leaving {i}" for i in range(400)], None))
        staying = asyncio.create_task(batcher.ask([f"staying {i}" for i in range(40)], None))
        await begun(echo, 1)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        assert batcher.waiting < 40
        echo.go.set()
        await staying
        computed = [text for batch in echo.batches for text in batch]
        assert sum(text.startswith("leaving") for text in computed) < 10
        assert sum(text.startswith("staying") for text in computed) == 40

    run(work, Echo(is_let=False), BatchSettings(batch_tokens=20))


class Endless(Echo):
    """Decodes a batch with an endless text until it is cancelled."""

    def __call__(self, texts: list[str], options: Any) -> list[Any]:
        results = super().__call__(texts, options)
        while any(text.startswith("endless") for text in texts) and not self.done:
            check_cancelled()
            time.sleep(0.001)
        return results

    done = False


def test_a_batch_that_nobody_waits_for_is_cancelled() -> None:
    async def work(batcher: Batcher, echo: Echo) -> None:
        first, second = (asyncio.create_task(batcher.ask([f"endless {i}"], None)) for i in range(2))
        await begun(echo, 1)
        next_one = asyncio.create_task(batcher.ask(["next"], None))
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await asyncio.sleep(0.05)
        assert len(echo.batches) == 1, "the second still waits"
        second.cancel()
        assert await next_one == [("next", None)]
        assert echo.batches == [["endless 0", "endless 1"], ["next"]]

    run(work, Endless(), BatchSettings(wait=0.05))


def test_a_batch_goes_on_for_those_who_wait() -> None:
    async def work(batcher: Batcher, echo: Endless) -> None:
        first, second = (asyncio.create_task(batcher.ask([f"endless {i}"], None)) for i in range(2))
        await begun(echo, 1)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        echo.done = True
        assert await second == [("endless 1", None)]

    run(work, Endless(), BatchSettings(wait=0.05))


def test_closing_cancels_what_is_decoded() -> None:
    async def main() -> None:
        echo = Endless()
        batcher = Batcher(echo, BatchSettings())
        asked = asyncio.create_task(batcher.ask(["endless"], None))
        await begun(echo, 1)
        await batcher.close()
        asked.cancel()

    asyncio.run(main())


def test_a_reader_who_leaves_a_stream_leaves_the_line() -> None:
    async def work(batcher: Batcher, echo: Echo) -> None:
        async with aclosing(batcher.answers([str(i) for i in range(1000)], None)) as answers:
            assert (await anext(answers))[0] == "0"
        assert batcher.waiting == 0

    run(work, Echo(), BatchSettings(batch_tokens=4))


def test_who_comes_too_late_is_told_so_but_one_long_request_is_taken() -> None:
    async def work(batcher: Batcher, echo: Echo) -> None:
        first = asyncio.create_task(batcher.ask([str(i) for i in range(100)], None))
        await begun(echo, 1)
        with pytest.raises(QueueFull) as raised:
            await batcher.ask(["late"], None)
        assert raised.value.seconds >= 1
        echo.go.set()
        assert len(await first) == 100
        assert len(await batcher.ask(["later"], None)) == 1

    run(work, Echo(is_let=False), BatchSettings(batch_tokens=20, most_waiting=10))


def test_a_fault_is_its_own_requests_alone() -> None:
    async def work(batcher: Batcher, echo: Echo) -> None:
        asked = [batcher.ask(["right"], None), batcher.ask(["wrong", "behind it"], None), batcher.ask(["fine"], None)]
        right, wrong, fine = await asyncio.gather(*asked, return_exceptions=True)
        assert (right, fine) == ([("right", None)], [("fine", None)])
        assert isinstance(wrong, UserError)

    run(work, Echo(), BatchSettings(wait=0.05))


def test_one_who_asks_otherwise_has_the_next_turn() -> None:
    async def work(batcher: Batcher, echo: Echo) -> None:
        echo.go.clear()
        many = asyncio.create_task(batcher.ask([f"many {i}" for i in range(200)], "n_best=1"))
        await begun(echo, 1)
        other = asyncio.create_task(batcher.ask(["other"], "n_best=3"))
        await asyncio.sleep(0)
        echo.go.set()
        await asyncio.gather(many, other)
        assert ["other"] in echo.batches[:4], "not behind all of the first"

    run(work, Echo(), BatchSettings(batch_tokens=20))


def test_requests_get_equal_shares_of_tokens() -> None:
    async def work(batcher: Batcher, echo: Echo) -> None:
        first = asyncio.create_task(batcher.ask(["first"], None))
        await begun(echo, 1)
        long, short = "long" * 50, "short"
        asked = [asyncio.create_task(batcher.ask([text] * n, None)) for text, n in ((long, 20), (short, 1000))]
        while batcher.waiting < 1020:
            await asyncio.sleep(0.001)
        echo.go.set()
        await asyncio.gather(first, *asked)
        order = [text for batch in echo.batches[1:] for text in batch]
        before = order[: len(order) - order[::-1].index(long)]
        assert before.count(short) * len(short) > 0.9 * 19 * len(long)

    run(work, Echo(is_let=False), BatchSettings(batch_tokens=1000), count_tokens=lambda texts: list(map(len, texts)))


def test_a_batch_has_as_many_tokens_as_the_tokenizer_counts() -> None:
    async def work(batcher: Batcher, echo: Echo) -> None:
        await batcher.ask(["漢" * 10] * 40, None, hypotheses=2)
        assert [len(batch) for batch in echo.batches] == [5] * 8

    run(work, Echo(), BatchSettings(batch_tokens=100), count_tokens=lambda texts: list(map(len, texts)))


def test_the_first_waits_for_others_only_so_long() -> None:
    async def work(batcher: Batcher, echo: Echo) -> None:
        await asyncio.gather(*(batcher.ask([str(i)], None) for i in range(5)))
        assert [len(batch) for batch in echo.batches] == [5]
        await batcher.ask(["alone"], None)

    run(work, Echo(), BatchSettings(wait=0.02))


def test_it_rests_when_nobody_comes() -> None:
    rested: list[int] = []

    async def work(batcher: Batcher, echo: Echo) -> None:
        await batcher.ask(["a"], None)
        while not rested:
            await asyncio.sleep(0.005)
        assert len(await batcher.ask(["b"], None)) == 1

    run(work, Echo(), BatchSettings(idle=0.02), rest=lambda: rested.append(1))
    assert len(rested) <= 3


def test_counts_of_batches() -> None:
    counted: list[int] = []

    async def work(batcher: Batcher, echo: Echo) -> None:
        await batcher.ask([str(i) for i in range(50)], None)
        assert (sum(counted), batcher.throughput.sentences, batcher.throughput.batches) == (50, 50, len(counted))

    run(work, Echo(), BatchSettings(batch_tokens=10), done=lambda sentences, seconds: counted.append(sentences))


def test_cached_sentences_are_not_translated_again() -> None:
    lookups: list[bool] = []
    cache = SentenceCache(3, lambda options: options != "random", lookups.append)

    async def work(batcher: Batcher, echo: Echo) -> None:
        assert await batcher.ask(["a", "b"], 0) == [("a", 0), ("b", 0)]
        assert await batcher.ask(["b", "c", "a"], 0) == [("b", 0), ("c", 0), ("a", 0)]
        assert await batcher.ask(["b", "a", "c"], 0) == [("b", 0), ("a", 0), ("c", 0)]
        assert [sorted(batch) for batch in echo.batches] == [["a", "b"], ["c"]] and len(lookups) == 8
        await batcher.ask(["a"], 1)  # other options; "b" was used least recently, and is dropped
        await batcher.ask(["a", "c"], 0)
        assert echo.batches[2:] == [["a"]] and len(cache) == 3
        await batcher.ask(["b"], 0)
        for _ in range(2):
            await batcher.ask(["b"], "random")
            await batcher.ask(["x" * (MOST_CHARACTERS + 1)], 0)
        assert len(echo.batches) == 8 and len(lookups) == 12 and len(cache) == 3

    run(work, Echo(), BatchSettings(wait=0.0), cache=cache)


def test_errors_are_not_cached_and_an_unloaded_model_has_no_cache() -> None:
    cache = SentenceCache(9)

    async def work(batcher: Batcher, echo: Echo) -> None:
        for _ in range(2):
            with pytest.raises(UserError, match="wrong"):
                await batcher.ask(["wrong"], 0)
        assert len(echo.batches) == 2 and not len(cache)
        await batcher.ask(["a"], 0)
        while len(cache):
            await asyncio.sleep(0.01)
        await batcher.ask(["a"], 0)
        assert len(echo.batches) == 4

    run(work, Echo(), BatchSettings(wait=0.0, idle=0.05), cache=cache)


def test_requests_of_cached_sentences_are_answered_while_the_queue_is_full() -> None:
    async def work(batcher: Batcher, echo: Echo) -> None:
        await batcher.ask(["a"], 0)
        echo.go.clear()
        held = asyncio.gather(batcher.ask(["b"], 0), batcher.ask(["c", "d"], 1))
        await begun(echo, 2)
        assert await batcher.ask(["a"] * 9, 0) == [("a", 0)] * 9
        with pytest.raises(QueueFull):
            await batcher.ask(["e"] * 9, 0)
        echo.go.set()
        await held

    run(work, Echo(), BatchSettings(wait=0.0, most_waiting=5), cache=SentenceCache(9))

"""Batched search over token ids: sort by length, cut into batches, search, restore the order.

A request (`request.SearchRequest`) runs on one of two engines (`contract.SearchEngine`): the compiled library
(`runtime.native.network`) in several threads and without torch, or torch (`stepwise`), one batch after another.
"""

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.config.settings import SearchSettings
from headwise.contract import Continuation, Hypothesis, SearchEngine, SpecialIds, StepCallback, StepwiseSearch
from headwise.device import usable_threads
from headwise.runtime.native.threads import SharedThreads
from headwise.runtime.search.cancellation import check_cancelled, set_when_cancelled
from headwise.runtime.search.candidates import CandidateTable
from headwise.runtime.search.request import (
    DecodeBatch,
    Results,
    SearchRequest,
    batches,
    halves,
    memory_advice,
    non_finite_error,
    run_sequentially,
)

# Bounds of a thread's share of `batch_tokens`. With fewer rows, matrix products wait for weights; more rows, which are
# multiplied about 50 at a time, only take memory.
MIN_SHARE, MAX_SHARE = 512, 1024


def decode_tokens(
    engine: SearchEngine,
    sources: Sequence[Sequence[int]],
    settings: SearchSettings,
    special: SpecialIds | None = None,
    prefixes: Sequence[Sequence[int]] | None = None,
    max_len: int | None = None,
    shortlist: CandidateTable | None = None,
    phrases: Sequence[Sequence[Sequence[int]]] | None = None,
) -> list[list[Hypothesis]]:
    """`execute` of a request with these values."""
    prefixes = prefixes if prefixes is not None else [()] * len(sources)
    request = SearchRequest(sources, prefixes, settings, special or SpecialIds(), max_len, shortlist, phrases)
    return execute(engine, request)


def execute(engine: SearchEngine, request: SearchRequest) -> list[list[Hypothesis]]:
    """The hypotheses for each source of a request, best first, in the order of the sources.

    Results do not depend on the other sources, except for rounding in padded matrix products. The library has none, and
    searches a source that occurs several times once. A batch that does not fit into memory is split in half.

    Raises:
        UserError: the settings are invalid, the model's outputs are not finite, or a single source does not fit into
            memory (`TooLarge`).
        SearchCancelled: another thread has cancelled the search (`cancellation`).
    """
    request.settings.check()
    found: list[list[Hypothesis]] = [[Hypothesis([], 0.0, 0.0, [])] for _ in request.sources]
    firsts = [*range(len(found))] if _pads(engine) else request.firsts()
    lengths = [len(source) if firsts[i] == i else 0 for i, source in enumerate(request.sources)]
    stop = np.zeros(1, np.int32)
    with set_when_cancelled(stop), closing(_results(engine, request, lengths, stop)) as finished:
        for batch, results in finished:
            for i, hypotheses in zip(batch, results, strict=True):
                may_be_empty = request.phrases and request.phrases[i]
                if not (math.isfinite(hypotheses[0].log_prob) if hypotheses else may_be_empty):
                    raise non_finite_error()
                found[i] = hypotheses
    return [found[first] for first in firsts]


def _pads(engine: SearchEngine) -> bool:
    """Whether it is torch, which has its own threads and pads batches."""
    return getattr(engine, "single_threaded", False)


def _results(engine: SearchEngine, request: SearchRequest, lengths: Sequence[int], stop: NDArray[np.int32]) -> Results:
    """Runs batches in threads, which share the memory of one batch, or one after another. Length 0: left out.

    Even a single batch gets its own thread, so that the main thread can handle signals.
    """
    settings, threads = request.settings, usable_threads()

    def decode(batch: list[int]) -> list[list[Hypothesis]]:
        return engine.search(*request.of(batch).arguments(), stop)

    advice = memory_advice(settings)
    if _pads(engine):
        return run_sequentially(decode, batches(lengths, settings), advice)
    share = max(min(settings.batch_tokens, MIN_SHARE), min(settings.batch_tokens // threads, MAX_SHARE))
    waiting = list(batches(lengths, replace(settings, batch_tokens=share)))
    return run_in_threads(decode, waiting, stop, advice)


def begin(engine: SearchEngine, request: SearchRequest) -> StepwiseSearch:
    """The search for a single source, before its first step."""
    return engine.begin(*request.arguments())


def watch(search: StepwiseSearch, callback: StepCallback) -> Hypothesis:
    """The best hypothesis of a search; `callback` is called after each step."""
    while steps := search.advance():
        callback(steps[0])
    (ranked,) = search.hypotheses()
    if not (ranked and math.isfinite(ranked[0].log_prob)):
        raise non_finite_error()
    return ranked[0]


def greedy_steps(search: StepwiseSearch) -> Iterator[Continuation]:
    """The continuations of greedy search or sampling, step by step."""
    while steps := search.advance():
        yield only_continuation(steps[0])


def only_continuation(ranked: list[Continuation]) -> Continuation:
    """The continuation of a step of greedy search; `UserError` if its score is not finite."""
    if not (ranked and math.isfinite(ranked[0].token_log_prob)):
        raise non_finite_error()
    return ranked[0]


def run_in_threads(decode: DecodeBatch, waiting: list[list[int]], stop: NDArray[np.int32], advice: str) -> Results:
    """Runs batches in `usable_threads` threads. Batches that do not fit into memory are split and run again, alone.

    When fewer batches than threads are left, these have several threads each. If the system allows fewer threads
    (`ulimit -u`, a container's limit), those are used, or none. When the caller stops waiting, `stop` becomes non-zero
    and `decode` ends soon. `advice` completes the message of `TooLarge`.
    """
    usable = usable_threads()
    threads = min(usable, len(waiting))
    while threads:
        shared = SharedThreads(usable, len(waiting))
        with ThreadPoolExecutor(threads) as pool:
            try:
                futures = _submitted(pool, decode, waiting, shared)
                if len(futures) == len(waiting):
                    yield from _answered(pool, decode, futures, shared, advice)
                    return
            finally:  # also on Ctrl-C
                stop[0] = 1
                pool.shutdown(cancel_futures=True)
        threads, stop[0] = min(threads - 1, len(futures)), 0
        check_cancelled()  # `stop` may have been set meanwhile
    yield from run_sequentially(decode, waiting, advice)


def _submitted(
    pool: Any, decode: DecodeBatch, waiting: list[list[int]], shared: SharedThreads
) -> list[tuple[list[int], Any]]:
    """Batches with their futures, up to the first for which the system could not start a thread."""
    futures = []
    for batch in waiting:
        try:
            futures.append((batch, pool.submit(shared.run, partial(_or_none, decode, batch))))
        except RuntimeError:
            break
    return futures


def _answered(
    pool: Any, decode: DecodeBatch, futures: list[tuple[list[int], Any]], shared: SharedThreads, advice: str
) -> Results:
    too_large: list[list[int]] = []
    for batch, future in futures:
        results = future.result()
        if results is None:
            too_large += [batch] if len(batch) == 1 else halves(batch, advice)[::-1]
        else:
            yield batch, results
    alone = partial(pool.submit, shared.run)
    yield from run_sequentially(lambda batch: alone(partial(decode, batch)).result(), too_large, advice)


def _or_none(decode: DecodeBatch, batch: list[int]) -> list[Any] | None:
    """None if memory has run out; the exception itself would keep objects alive."""
    try:
        return decode(batch)
    except MemoryError:
        return None

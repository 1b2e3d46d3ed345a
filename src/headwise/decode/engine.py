"""Batched search over token ids: sort by length, cut into batches, search, restore the order.

A request (`request.SearchRequest`) is executed by one of two engines (`contract.SearchEngine`): the compiled library
(`native.network`), in several threads and without torch, or torch (`stepwise`), one batch after the other. Not here:
text (`translator`) and the search itself (`search`, `native/search.c`).
"""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.config.settings import SearchSettings
from headwise.contract import Hypothesis, SearchEngine, SearchInSteps, SpecialIds
from headwise.decode.candidates import CandidateTable
from headwise.decode.request import (
    DecodeBatch,
    Results,
    SearchRequest,
    _halves,
    batches,
    less_memory,
    not_finite,
    one_by_one,
)
from headwise.device import usable_threads

# Of `batch_tokens` for each thread: fewer rows would leave the products waiting for their weights, and more, which are
# multiplied some 50 at a time, only take memory.
LEAST_SHARE, MOST_SHARE = 512, 1024


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

    What a source yields does not depend on the other sources, but for the rounding of padded matrix products.

    Raises:
        UserError: the settings make no sense, the model gives numbers that are not finite, or memory does not hold the
            search for a single source (`TooLarge`). A batch that it does not hold is cut in half.
    """
    request.settings.check()
    found: list[list[Hypothesis]] = [[Hypothesis([], 0.0, 0.0, [])] for _ in request.sources]
    with closing(_results(engine, request)) as finished:
        for batch, results in finished:
            for i, hypotheses in zip(batch, results, strict=True):
                fails = request.phrases and request.phrases[i]
                if not (math.isfinite(hypotheses[0].log_prob) if hypotheses else fails):
                    raise not_finite()
                found[i] = hypotheses
    return found


def _results(engine: SearchEngine, request: SearchRequest) -> Results:
    """Batches side by side in threads, which together take the memory of one batch; or one after the other.

    A thread of its own has even the only batch: signals are for the main thread, which is to wait where they reach it.
    """
    stop, settings = np.zeros(1, np.int32), request.settings

    def decode(batch: list[int]) -> list[list[Hypothesis]]:
        return engine.search(*request.of(batch).arguments(), stop)

    lengths, way_out = [len(source) for source in request.sources], less_memory(settings)
    if getattr(engine, "in_one_thread", False):
        return one_by_one(decode, batches(lengths, settings), way_out)
    share = max(min(settings.batch_tokens, LEAST_SHARE), min(settings.batch_tokens // usable_threads(), MOST_SHARE))
    waiting = list(batches(lengths, replace(settings, batch_tokens=share)))
    return in_threads(decode, waiting, stop, way_out)


def begin(engine: SearchEngine, request: SearchRequest) -> SearchInSteps:
    """The search of a single source before its first step."""
    return engine.begin(*request.arguments())


def in_threads(decode: DecodeBatch, waiting: list[list[int]], stop: NDArray[np.int32], way_out: str) -> Results:
    """Batches side by side in `usable_threads`; what memory does not hold is done again on its own, cut in half.

    Where the system starts fewer threads (`ulimit -u`, a container's limit), these do the work, or the caller's alone.
    `decode` ends soon after `stop` came to hold another number than 0, which it does when nobody waits any more.
    `way_out` says what to do where memory does not hold the search for a single source.
    """
    threads = min(usable_threads(), len(waiting))
    while threads:
        with ThreadPoolExecutor(threads) as pool:
            try:
                answers = _submitted(pool, decode, waiting)
                if len(answers) == len(waiting):
                    yield from _answered(pool, decode, answers, way_out)
                    return
            finally:  # also when Ctrl-C has ended the waiting
                stop[0] = 1
                pool.shutdown(cancel_futures=True)
        threads, stop[0] = min(threads - 1, len(answers)), 0
    yield from one_by_one(decode, waiting, way_out)


def _submitted(pool: Any, decode: DecodeBatch, waiting: list[list[int]]) -> list[tuple[list[int], Any]]:
    """The batches and their answers to come, up to the one for which the system started no thread."""
    answers = []
    for batch in waiting:
        try:
            answers.append((batch, pool.submit(_or_none, decode, batch)))
        except RuntimeError:
            break
    return answers


def _answered(pool: Any, decode: DecodeBatch, answers: list[tuple[list[int], Any]], way_out: str) -> Results:
    crowded: list[list[int]] = []
    for batch, answer in answers:
        found = answer.result()
        if found is None:
            crowded += [batch] if len(batch) == 1 else _halves(batch, way_out)[::-1]
        else:
            yield batch, found
    yield from one_by_one(lambda batch: pool.submit(decode, batch).result(), crowded, way_out)


def _or_none(decode: DecodeBatch, batch: list[int]) -> list[list[Hypothesis]] | None:
    """None where memory has run out: the error itself would keep what is in memory."""
    try:
        return decode(batch)
    except MemoryError:
        return None

"""Batched decoding of token ids: sort by length, cut into batches, search, restore the order.

A model that can search by itself (`OwnSearch`) is asked to, in several threads and without torch; any other is decoded
step by step (`steps`). Not here: text (`translator`) and the search itself (`search`).
"""

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sightline.config.settings import SearchSettings
from sightline.contract import (
    EncoderDecoder,
    Hypothesis,
    OwnSearch,
    SearchInSteps,
    SearchOptions,
    SpecialIds,
)
from sightline.decode.candidates import Candidates, CandidateTable
from sightline.decode.request import (
    Asked,
    Bounds,
    DecodeBatch,
    Results,
    _halves,
    batches,
    bounds,
    check_decoding,
    less_memory,
    not_finite,
    one_by_one,
    random_stream,
    search_options,
)
from sightline.device import usable_threads

# Of `batch_tokens` for each thread: fewer rows would leave the products waiting for their weights, and more, which are
# multiplied some 50 at a time, only take memory.
LEAST_SHARE, MOST_SHARE = 512, 1024


def decode_tokens(
    model: EncoderDecoder | OwnSearch,
    sources: Sequence[Sequence[int]],
    config: SearchSettings,
    special: SpecialIds | None = None,
    prefixes: Sequence[Sequence[int]] | None = None,
    max_len: int | None = None,
    shortlist: CandidateTable | None = None,
    phrases: Sequence[Sequence[Sequence[int]]] | None = None,
) -> list[list[Hypothesis]]:
    """The hypotheses for each source, best first, in the order of the sources.

    An empty source has one empty hypothesis and is not shown to the model. What a source yields does not
    depend on the other sources, but for the rounding of padded matrix products.

    Args:
        model: searches by itself, or is put into evaluation mode for the time being.
        sources: token ids without start or end mark; the end mark is added here.
        config: how to search. Lengths relate to the source with its end mark.
        special: the ids of start, end, padding and unknown.
        prefixes: token ids that each output must begin with; the longest length is extended by them.
        max_len: the longest output the model can write, where it has a limit (learned positions).
        shortlist: what outputs may be made of; None = the whole vocabulary, whatever `config.shortlist` asks for.
        phrases: token ids that each output must contain, see `phrases`; a source for which there is no such output of
            the longest length has no hypothesis.

    Raises:
        UserError: the settings make no sense, the model gives numbers that are not finite, or memory does not hold the
            search for a single source (`TooLarge`). A batch that it does not hold is cut in half.
    """
    check_decoding(config)
    prefixes = prefixes if prefixes is not None else [()] * len(sources)
    asked = Asked(sources, prefixes, config, special or SpecialIds(), max_len, shortlist, phrases)
    found: list[list[Hypothesis]] = [[Hypothesis([], 0.0, 0.0, [])] for _ in sources]
    run = _by_model if isinstance(model, OwnSearch) else _by_steps
    with closing(run(model, asked)) as finished:
        for batch, results in finished:
            for i, hypotheses in zip(batch, results, strict=True):
                if not (math.isfinite(hypotheses[0].log_prob) if hypotheses else phrases and phrases[i]):
                    raise not_finite()
                found[i] = hypotheses
    return found


def _by_steps(model: Any, asked: Asked) -> Results:
    from sightline.decode.steps import decode_by_steps  # brings torch, which a model's own search does without

    return decode_by_steps(model, asked)


def _by_model(model: Any, asked: Asked) -> Results:
    """Batches side by side in threads, which together take the memory of one batch.

    A thread of its own has even the only batch: signals are for the main thread, which is to wait where they reach it.
    """
    stop, config = np.zeros(1, np.int32), asked.config

    def decode(batch: list[int]) -> list[list[Hypothesis]]:
        return model.search(*_for_model(asked.of(batch)), stop)

    share = max(min(config.batch_tokens, LEAST_SHARE), min(config.batch_tokens // usable_threads(), MOST_SHARE))
    waiting = list(batches([len(source) for source in asked.sources], replace(config, batch_tokens=share)))
    yield from in_threads(decode, waiting, stop, less_memory(config))


def begin(model: OwnSearch, asked: Asked) -> SearchInSteps:
    """The search of a single source before its first step."""
    return model.begin(*_for_model(asked))


def _for_model(asked: Asked) -> tuple[Any, Bounds, SearchOptions, Candidates | None]:
    """What a model's own search is asked."""
    limits = bounds(asked)
    if asked.config.sample:
        limits = replace(limits, streams=np.array([random_stream(source) for source in asked.sources], np.int64))
    few = None if asked.shortlist is None else asked.shortlist.candidates(*asked.listed())
    return asked.ended(), limits, search_options(asked.config, asked.special), few


def in_threads(decode: DecodeBatch, waiting: list[list[int]], stop: NDArray[np.int32], way_out: str) -> Results:
    """Batches side by side in `usable_threads`; what memory does not hold is done again on its own, cut in half.

    Where the system starts fewer threads (`ulimit -u`, a container's limit), these do the work, or the caller's alone.
    `decode` ends soon after `stop` came to hold another number than 0, which it does when nobody waits any more.
    `way_out` says what to do where memory does not hold the search for a single source.
    """
    from concurrent.futures import ThreadPoolExecutor

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

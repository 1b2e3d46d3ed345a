"""Batched decoding of token ids: sort by length, cut into batches, search, restore the order.

A model that can search by itself (`OwnSearch`) is asked to, in several threads and without torch; any other is decoded
step by step (`steps`). Not here: text (`translator`) and the search itself (`search`).
"""

import math
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import astuple, dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sightline.config import DecodeConfig, check_values
from sightline.cores import usable_threads
from sightline.decode.candidates import Candidates, CandidateTable
from sightline.decode.contract import (
    FREE,
    EncoderDecoder,
    Hypothesis,
    OwnSearch,
    SearchInSteps,
    SearchOptions,
    SpecialIds,
)
from sightline.errors import UserError

# Of `batch_tokens` for each thread: fewer rows would leave the products waiting for their weights, and more, which are
# multiplied some 50 at a time, only take memory.
LEAST_SHARE, MOST_SHARE = 512, 1024


class TooLarge(UserError):
    """Memory does not hold the search for one source, known by its index, which callers turn into that of their own."""

    def __init__(self, index: int, why: str, kind: str = "text") -> None:
        super().__init__(index, why, kind)
        self.index, self.why, self.kind = index, why, kind

    def __str__(self) -> str:
        return f"{self.kind} {self.index + 1}: {self.why}"


DecodeBatch = Callable[[list[int]], list[list[Hypothesis]]]  # of the sources with these indices
Results = Generator[tuple[list[int], list[list[Hypothesis]]], None, None]


@dataclass(frozen=True)
class Bounds:
    """Bounds of each output, in pieces; the longest length counts the end mark, the shortest does not."""

    min_length: NDArray[np.int64]  # (sentences,)
    max_length: NDArray[np.int64]  # (sentences,), at least 1
    prefix: NDArray[np.int64]  # (sentences, prefix_len); FREE right of a sentence's own prefix
    streams: NDArray[np.int64] | None = None  # (sentences,), numbers of their random streams; None: nothing is drawn
    phrases: NDArray[np.int64] = field(default_factory=lambda: padded(()))  # to be written, (sentences, n, length)


@dataclass(frozen=True)
class Asked:
    """Outputs that are asked for: what `decode_tokens` is told, beside the model."""

    sources: Sequence[Sequence[int]]
    prefixes: Sequence[Sequence[int]]
    config: DecodeConfig
    special: SpecialIds
    max_len: int | None = None
    shortlist: CandidateTable | None = None
    phrases: Sequence[Sequence[Sequence[int]]] | None = None

    def of(self, batch: Sequence[int]) -> "Asked":
        """The same of some sources."""
        phrases = None if self.phrases is None else [self.phrases[i] for i in batch]
        sources, prefixes = ([of[i] for i in batch] for of in (self.sources, self.prefixes))
        return replace(self, sources=sources, prefixes=prefixes, phrases=phrases)

    def ended(self) -> list[list[int]]:
        """The sources with their end marks."""
        return [[*source, self.special.eos_id] for source in self.sources]

    def listed(self) -> tuple[list[list[int]], list[list[int]], tuple[int, ...]]:
        """What a shortlist is asked: sources, what stands in their outputs whatever is likely, and special ids."""
        phrases = self.phrases or [()] * len(self.sources)
        forced = [[*prefix, *chain(*of)] for prefix, of in zip(self.prefixes, phrases, strict=True)]
        return self.ended(), forced, astuple(self.special)


def check_decoding(config: DecodeConfig) -> None:
    """Raise a `UserError` for settings that contradict each other or have no meaning."""
    check_values("decode", config)
    if not config.sample and config.n_best > config.beam_size:
        raise UserError(
            f"decode.n_best = {config.n_best} is more than decode.beam_size = {config.beam_size}: "
            "ask for fewer or search with a wider beam"
        )


def decode_tokens(
    model: EncoderDecoder | OwnSearch,
    sources: Sequence[Sequence[int]],
    config: DecodeConfig,
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


def one_by_one(decode: DecodeBatch, waiting: Iterable[list[int]], way_out: str) -> Results:
    """One batch after the other; one that memory does not hold is cut in half. `way_out` as of `in_threads`."""
    stack = list(waiting)[::-1]
    while stack:
        batch = stack.pop()
        try:
            yield batch, decode(batch)
        except MemoryError:
            stack += _halves(batch, way_out)


def less_memory(config: DecodeConfig) -> str:
    """What to do where memory does not hold the search for a single source."""
    return (
        f"lower --beam-size, which is decode.beam_size (now {config.beam_size}), or --max-source-length, "
        f"decode.max_source_length (now {config.max_source_length}), or use --device cpu if it was a GPU's"
    )


def _halves(batch: list[int], way_out: str) -> list[list[int]]:
    """A batch that did not fit into memory as two, the latter first; memory grows with rows x length alone."""
    if len(batch) == 1:
        raise TooLarge(batch[0], f"memory does not hold the search for its translation: {way_out}")
    middle = len(batch) // 2
    return [batch[middle:], batch[:middle]]


def batches(lengths: Sequence[int], config: DecodeConfig) -> Iterator[list[int]]:
    """Indices of non-empty sources, the longest first.

    Sentences x hypotheses x longest source, with its end mark, stays within `batch_tokens`; a source beyond
    that is a batch of its own.

    >>> list(batches([3, 0, 9, 4], DecodeConfig(batch_tokens=20, beam_size=2)))
    [[2], [3, 0]]
    """
    hypotheses = config.n_best if config.sample else config.beam_size
    batch: list[int] = []
    longest_first = sorted((i for i, length in enumerate(lengths) if length), key=lambda i: -lengths[i])
    for i in longest_first:
        if batch and (len(batch) + 1) * (lengths[batch[0]] + 1) * hypotheses > config.batch_tokens:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def bounds(asked: Asked) -> Bounds:
    """Shortest and longest outputs in proportion to the sources with their end marks, prefixes and phrases."""
    longest, shortest, config, max_len = [], [], asked.config, asked.max_len
    for source, prefix in zip(asked.ended(), asked.prefixes, strict=True):
        most = int(config.max_length_factor * len(source)) + config.max_length_extra + len(prefix)
        most = max(1, min(most, max_len) if max_len else most)
        longest.append(most)
        shortest.append(min(int(config.min_length_factor * len(source)), most - 1))
    forced = padded([[prefix] for prefix in asked.prefixes])[:, 0]
    return Bounds(np.array(shortest), np.array(longest), forced, phrases=padded(asked.phrases or ()))


def padded(rows: Sequence[Sequence[Sequence[int]]]) -> NDArray[np.int64]:
    """Several lists of ids of each row, (rows, lists, ids); FREE right of each list and below the last.

    >>> padded([[[5, 6], [7]], []]).tolist()
    [[[5, 6], [7, -1]], [[-1, -1], [-1, -1]]]
    """
    longest = max((len(ids) for lists in rows for ids in lists), default=0)
    found = np.full((len(rows), max(map(len, rows), default=0), longest), FREE)
    for i, lists in enumerate(rows):
        for j, ids in enumerate(lists):
            found[i, j, : len(ids)] = ids
    return found


def search_options(config: DecodeConfig, special: SpecialIds) -> SearchOptions:
    """What the search is to know of the settings."""
    return SearchOptions(
        beam_size=config.beam_size,
        length_penalty=config.length_penalty,
        n_best=config.n_best,
        bos_id=special.bos_id,
        eos_id=special.eos_id,
        suppressed=(special.pad_id, special.bos_id, special.unk_id),
        temperature=config.temperature,
        top_k=config.top_k,
        top_p=config.top_p,
        seed=config.seed,
        no_repeat_ngram=config.no_repeat_ngram,
    )


def not_finite() -> UserError:
    """What to raise where the model gives no number."""
    return UserError("the model's predictions are not finite: its training diverged or its file is damaged")


def random_stream(source: Sequence[int]) -> int:
    """The number of a sentence's random stream: a hash of its tokens, so that it is the same in any batch."""
    from hashlib import blake2b  # brings the whole of OpenSSL

    digest = blake2b(array("q", source).tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)

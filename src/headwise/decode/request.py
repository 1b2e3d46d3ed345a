"""One search request: sources, forced prefixes, settings, special ids, bounds and a shortlist; and its batches.

Whichever engine searches (`contract.SearchEngine`), it is given the same: `arguments` of a request.
"""

from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from headwise.config.settings import SearchSettings
from headwise.contract import (
    FREE,
    NEVER,
    Hypothesis,
    SearchOptions,
    SpecialIds,
    Stop,
)
from headwise.decode.candidates import Candidates, CandidateTable
from headwise.errors import UserError


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
class SearchRequest:
    """Outputs that are wanted, for one of the engines.

    Args:
        sources: token ids without `special.source_end`. An empty one has one empty output.
        prefixes: token ids that each output must begin with; the longest length is extended by them.
        settings: how to search. Lengths relate to the source with its end.
        special: the ids of the tokenizer.
        max_len: the longest output the model can write, where it has a limit (learned positions).
        shortlist: what outputs may be made of; None = the whole vocabulary, whatever `settings.shortlist` says.
        phrases: token ids that each output must contain, see `decode.phrases`; a source for which there is no such
            output of the longest length has no hypothesis.
        stop: which outputs end although they have no end mark; torch alone can search with it.
    """

    sources: Sequence[Sequence[int]]
    prefixes: Sequence[Sequence[int]]
    settings: SearchSettings
    special: SpecialIds
    max_len: int | None = None
    shortlist: CandidateTable | None = None
    phrases: Sequence[Sequence[Sequence[int]]] | None = None
    stop: Stop | None = None

    def of(self, batch: Sequence[int]) -> "SearchRequest":
        """The same of some sources."""
        phrases = None if self.phrases is None else [self.phrases[i] for i in batch]
        sources, prefixes = ([of[i] for i in batch] for of in (self.sources, self.prefixes))
        return replace(self, sources=sources, prefixes=prefixes, phrases=phrases)

    def ended(self) -> list[list[int]]:
        """The sources with their ends."""
        return [self.special.ended(source) for source in self.sources]

    def candidates(self) -> Candidates | None:
        """What the outputs may be made of, if there is a shortlist."""
        if self.shortlist is None:
            return None
        phrases = self.phrases or [()] * len(self.sources)
        forced = [[*prefix, *chain(*of)] for prefix, of in zip(self.prefixes, phrases, strict=True)]
        return self.shortlist.candidates(self.ended(), forced, self.special.known)

    def arguments(self) -> tuple[list[list[int]], Bounds, SearchOptions, Candidates | None]:
        """What an engine is given."""
        assert self.special.prompt, "a UserError where nothing is known to begin with"
        limits = bounds(self)
        if self.settings.sample:
            streams = np.array([random_stream(source) for source in self.sources], np.int64)
            limits = replace(limits, streams=streams)
        longest = max(map(len, self.prefixes), default=0)
        options = search_options(self.settings, self.special, longest, self.stop)
        if limits.phrases.size and options.ending != "unsurpassed":  # the only rule for phrases
            options = replace(options, ending="unsurpassed", length_penalty=max(0.0, options.length_penalty))
        return self.ended(), limits, options, self.candidates()


def one_by_one(decode: DecodeBatch, waiting: Iterable[list[int]], way_out: str) -> Results:
    """One batch after the other; one that memory does not hold is cut in half. `way_out` as of `in_threads`."""
    stack = list(waiting)[::-1]
    while stack:
        batch = stack.pop()
        try:
            yield batch, decode(batch)
        except MemoryError:
            stack += _halves(batch, way_out)


def less_memory(settings: SearchSettings) -> str:
    """What to do where memory does not hold the search for a single source."""
    return (
        f"lower --beam-size, which is decode.beam_size (now {settings.beam_size}), or --max-source-length, "
        f"decode.max_source_length (now {settings.max_source_length}), or use --device cpu if it was a GPU's"
    )


def _halves(batch: list[int], way_out: str) -> list[list[int]]:
    """A batch that did not fit into memory as two, the latter first; memory grows with rows x length alone."""
    if len(batch) == 1:
        raise TooLarge(batch[0], f"memory does not hold the search for its translation: {way_out}")
    middle = len(batch) // 2
    return [batch[middle:], batch[:middle]]


def batches(lengths: Sequence[int], settings: SearchSettings) -> Iterator[list[int]]:
    """Indices of non-empty sources, the longest first.

    Sentences x hypotheses x longest source, with its end mark, stays within `batch_tokens`, and the number of sentences
    within `batch_size`; a source beyond that is a batch of its own.

    >>> list(batches([3, 0, 9, 4], SearchSettings(batch_tokens=20, beam_size=2)))
    [[2], [3, 0]]
    """
    hypotheses = settings.n_best if settings.sample else settings.beam_size
    most = settings.batch_size or len(lengths)
    batch: list[int] = []
    longest_first = sorted((i for i, length in enumerate(lengths) if length), key=lambda i: -lengths[i])
    for i in longest_first:
        tokens = (len(batch) + 1) * (lengths[batch[0]] + 1) * hypotheses if batch else 0
        if batch and (tokens > settings.batch_tokens or len(batch) == most):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def bounds(request: SearchRequest) -> Bounds:
    """Shortest and longest outputs in proportion to the sources with their ends, prefixes and phrases."""
    longest, shortest, settings, special = [], [], request.settings, request.special
    begun = len(special.forced)
    for source, prefix in zip(request.ended(), request.prefixes, strict=True):
        most = int(settings.max_length_factor * len(source)) + settings.max_length_extra + len(prefix)
        most = max(begun + 1, min(most, request.max_len) if request.max_len else most)
        least = int(settings.min_length_factor * len(source)) + settings.min_length_extra
        longest.append(most)
        shortest.append(0 if special.eos_id == NEVER else min(max(least, begun), most - 1))
    forced = padded([[[*special.forced, *prefix]] for prefix in request.prefixes])[:, 0]
    return Bounds(np.array(shortest), np.array(longest), forced, phrases=padded(request.phrases or ()))


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


ENDINGS = {"exact": "unsurpassed", "no": "pool_filled", "yes": "pool_filled_early", "never": "pool_filled_patient"}


def search_options(
    settings: SearchSettings, special: SpecialIds, longest_prefix: int = 0, stop: Stop | None = None
) -> SearchOptions:
    """The settings in ids, for an engine."""
    begun = len(special.forced)
    return SearchOptions(
        beam_size=settings.beam_size,
        length_penalty=settings.length_penalty,
        n_best=settings.n_best,
        bos_id=special.bos_id,
        eos_id=special.eos_id,
        suppressed=special.unwritten,
        suppressed_first=special.suppressed_first,
        other_ends=special.other_ends,
        ending=ENDINGS[settings.early_stopping],
        begun=begun,
        forced_end=None if settings.max_length_factor else special.forced_end,
        end_at=max(begun + 1, settings.max_length_extra) + longest_prefix,
        temperature=settings.temperature,
        top_k=settings.top_k,
        top_p=settings.top_p,
        seed=settings.seed,
        no_repeat_ngram=settings.no_repeat_ngram,
        start_counts=special.bos_id not in special.unwritten,
        stop=stop,
    )


def not_finite() -> UserError:
    """What to raise where the model gives no number."""
    return UserError("the model's predictions are not finite: its training diverged or its file is damaged")


def random_stream(source: Sequence[int]) -> int:
    """The number of a sentence's random stream: a hash of its tokens, so that it is the same in any batch."""
    digest = blake2b(array("q", source).tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)

"""A search request: sources, forced prefixes, settings, special ids, bounds and shortlist; and its batches."""

from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from hashlib import blake2b
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.config.settings import SearchSettings
from headwise.contract import (
    FREE,
    NEVER,
    Hypothesis,
    Limits,
    SearchOptions,
    SpecialIds,
    Stop,
)
from headwise.errors import NonFiniteError, UserError
from headwise.runtime.search.candidates import Candidates, CandidateTable


class TooLarge(UserError):
    """A single source does not fit into memory; callers convert its index to one of their inputs."""

    def __init__(self, index: int, why: str, kind: str = "text") -> None:
        super().__init__(index, why, kind)
        self.index, self.why, self.kind = index, why, kind

    def __str__(self) -> str:
        return f"{self.kind} {self.index + 1}: {self.why}"


DecodeBatch = Callable[[list[int]], list[Any]]  # of the sources with these indices


Results = Generator[tuple[list[int], list[Any]], None, None]


@dataclass(frozen=True)
class SearchRequest:
    """A batch of sources with everything a search needs.

    Args:
        sources: token ids without `special.source_end`. An empty one has one empty output.
        prefixes: token ids that each output must start with; they extend the maximum length.
        settings: length factors apply to the source with its end tokens.
        special: the special tokens.
        max_len: the longest output that the model supports (learned positions).
        shortlist: tokens that outputs may contain; None = the whole vocabulary, regardless of `settings.shortlist`.
        phrases: phrases that each output must contain, see `pytorch.search.phrases`; a source may end up without
            hypotheses.
        stop: stops outputs before their end token.
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

    def firsts(self) -> list[int]:
        """For each source the index of the first one with the same tokens, prefix and phrases, so the same outputs."""
        phrases = self.phrases or [()] * len(self.sources)
        seen: dict[Any, int] = {}
        parts = zip(self.sources, self.prefixes, phrases, strict=True)
        keys = ((tuple(source), tuple(prefix), tuple(map(tuple, of))) for source, prefix, of in parts)
        return [seen.setdefault(key, i) for i, key in enumerate(keys)]

    def ended(self) -> list[list[int]]:
        """The sources with their ends."""
        return [self.special.ended(source) for source in self.sources]

    def candidates(self) -> Candidates | None:
        """The tokens that outputs may contain, if there is a shortlist."""
        if self.shortlist is None:
            return None
        phrases = self.phrases or [()] * len(self.sources)
        forced = [[*prefix, *chain(*of)] for prefix, of in zip(self.prefixes, phrases, strict=True)]
        return self.shortlist.candidates(self.ended(), forced, self.special.known)

    def arguments(self) -> tuple[list[list[int]], Limits, SearchOptions, Candidates | None]:
        """The arguments of `SearchEngine.search`."""
        assert self.special.prompt, "raises a UserError without a start token"
        limits = bounds(self)
        longest = max(map(len, self.prefixes), default=0)
        options = search_options(self.settings, self.special, longest, self.stop)
        if limits.phrases is not None and options.early_stopping != "exact":  # phrases need the exact rule
            options = replace(options, early_stopping="exact", length_penalty=max(0.0, options.length_penalty))
        return self.ended(), limits, options, self.candidates()


def run_sequentially(decode: DecodeBatch, waiting: Iterable[list[int]], advice: str) -> Results:
    """Runs batches one after another; a batch that does not fit into memory is split."""
    stack = list(waiting)[::-1]
    while stack:
        batch = stack.pop()
        try:
            yield batch, decode(batch)
        except MemoryError:
            stack += halves(batch, advice)


def memory_advice(settings: SearchSettings) -> str:
    """The advice if a single source does not fit into memory."""
    return (
        f"lower --beam-size, which is decode.beam_size (now {settings.beam_size}), or --max-source-length, "
        f"decode.max_source_length (now {settings.max_source_length}), or use --device cpu if it was a GPU's"
    )


def halves(batch: list[int], advice: str) -> list[list[int]]:
    """The second and the first half of a batch that does not fit into memory."""
    if len(batch) == 1:
        raise TooLarge(batch[0], f"not enough memory to translate it: {advice}")
    middle = len(batch) // 2
    return [batch[middle:], batch[:middle]]


def batches(lengths: Sequence[int], settings: SearchSettings) -> Iterator[list[int]]:
    """Batches of indices of non-empty sources, longest first.

    Sentences x hypotheses x longest source, with its end token, is at most `batch_tokens`, and the number of sentences
    at most `batch_size`. A source beyond that is a batch of its own.

    >>> list(batches([3, 0, 9, 4], SearchSettings(batch_tokens=20, beam_size=2)))
    [[2], [3, 0]]
    """
    hypotheses = settings.n_best if settings.sample else settings.beam_size
    max_sentences = settings.batch_size or len(lengths)
    batch: list[int] = []
    longest_first = sorted((i for i, length in enumerate(lengths) if length), key=lambda i: -lengths[i])
    for i in longest_first:
        tokens = (len(batch) + 1) * (lengths[batch[0]] + 1) * hypotheses if batch else 0
        if batch and (tokens > settings.batch_tokens or len(batch) == max_sentences):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def bounds(request: SearchRequest) -> Limits:
    """Length limits from the sources with their end tokens; prefixes, streams and phrases as arrays."""
    longest, shortest, settings, special = [], [], request.settings, request.special
    n_forced = len(special.forced)
    for source, prefix in zip(request.ended(), request.prefixes, strict=True):
        most = int(settings.max_length_factor * len(source)) + settings.max_length_extra + len(prefix)
        most = max(n_forced + 1, min(most, request.max_len) if request.max_len else most)
        least = int(settings.min_length_factor * len(source)) + settings.min_length_extra
        longest.append(most)
        shortest.append(0 if special.eos_id == NEVER else min(max(least, n_forced), most - 1))
    forced = padded([[[*special.forced, *prefix]] for prefix in request.prefixes])[:, 0]
    streams = np.array([random_stream(source) for source in request.sources], np.int64) if settings.sample else None
    phrases = padded(request.phrases or ())
    return Limits(np.array(shortest), np.array(longest), forced, streams, phrases if phrases.size else None)


def padded(rows: Sequence[Sequence[Sequence[int]]]) -> NDArray[np.int64]:
    """Lists of ids of each row as one array (rows, lists, ids), padded with FREE.

    >>> padded([[[5, 6], [7]], []]).tolist()
    [[[5, 6], [7, -1]], [[-1, -1], [-1, -1]]]
    """
    longest = max((len(ids) for lists in rows for ids in lists), default=0)
    array = np.full((len(rows), max(map(len, rows), default=0), longest), FREE)
    for i, lists in enumerate(rows):
        for j, ids in enumerate(lists):
            array[i, j, : len(ids)] = ids
    return array


def prompt_context(prompts: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Prompts as `Limits.context`.

    >>> prompt_context([[5, 6], [7]]).tolist()
    [[5, 6], [-1, 7]]
    """
    return padded([[prompt[::-1]] for prompt in prompts])[:, 0, ::-1]


def search_options(
    settings: SearchSettings, special: SpecialIds, longest_prefix: int = 0, stop_function: Stop | None = None
) -> SearchOptions:
    """The options of an engine from settings and special tokens."""
    given = {field.name: getattr(record, field.name) for record in (settings, special) for field in fields(record)}
    own = {
        "suppressed": special.never_generated,
        "forced_end": None if settings.max_length_factor else special.forced_end,
        "end_at": max(len(special.forced) + 1, settings.max_length_extra) + longest_prefix,
        "bos_in_ngrams": special.bos_id not in special.never_generated,
        "stop_function": stop_function,
    }
    return SearchOptions(**given | own)


def with_start(found: Hypothesis, start: Sequence[int]) -> Hypothesis:
    """A hypothesis with forced tokens before it, whose probability is 1."""
    log_probs = [0.0] * len(start) + found.token_log_probs
    return replace(found, tokens=[*start, *found.tokens], token_log_probs=log_probs) if start else found


def non_finite_error() -> NonFiniteError:
    """The error for a model whose outputs are not finite."""
    return NonFiniteError(
        "the model's predictions are not finite: its training diverged or its file is damaged, or numbers are too "
        "large for float16 (choose bfloat16 or float32)"
    )


def random_stream(source: Sequence[int]) -> int:
    """The random stream of a sentence: a hash of its tokens, so that it does not depend on the batch."""
    digest = blake2b(array("q", source).tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)

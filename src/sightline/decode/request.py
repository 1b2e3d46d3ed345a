"""One search request: sources, prefixes, settings and limits, cut into batches."""

from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from sightline.config.setting import check_values
from sightline.config.settings import SearchSettings
from sightline.contract import (
    FREE,
    Hypothesis,
    SearchOptions,
    SpecialIds,
)
from sightline.decode.candidates import CandidateTable
from sightline.errors import UserError


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
    config: SearchSettings
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


def check_decoding(config: SearchSettings) -> None:
    """Raise a `UserError` for settings that contradict each other or have no meaning."""
    check_values("decode", config)
    if not config.sample and config.n_best > config.beam_size:
        raise UserError(
            f"decode.n_best = {config.n_best} is more than decode.beam_size = {config.beam_size}: "
            "ask for fewer or search with a wider beam"
        )


def one_by_one(decode: DecodeBatch, waiting: Iterable[list[int]], way_out: str) -> Results:
    """One batch after the other; one that memory does not hold is cut in half. `way_out` as of `in_threads`."""
    stack = list(waiting)[::-1]
    while stack:
        batch = stack.pop()
        try:
            yield batch, decode(batch)
        except MemoryError:
            stack += _halves(batch, way_out)


def less_memory(config: SearchSettings) -> str:
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


def batches(lengths: Sequence[int], config: SearchSettings) -> Iterator[list[int]]:
    """Indices of non-empty sources, the longest first.

    Sentences x hypotheses x longest source, with its end mark, stays within `batch_tokens`; a source beyond
    that is a batch of its own.

    >>> list(batches([3, 0, 9, 4], SearchSettings(batch_tokens=20, beam_size=2)))
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


def search_options(config: SearchSettings, special: SpecialIds) -> SearchOptions:
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

"""Drafts for speculative decoding (`speculative`): from the input, a translation memory, or a smaller model.

Bad guesses cost time, but never change the output.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from headwise.contract import Draft, Guess, SpecialIds
from headwise.runtime.checkpoint.releases import downloaded
from headwise.runtime.search.translator import clean_text
from headwise.text.files.corpus import parse_corpora, read_pairs

Encode = Callable[[str], list[int]]
LONGEST_MATCH = 3  # tokens of context to look up
COMMON = 64  # tokens in more than 1/COMMON of a memory's sources are ignored for similarity


class CopyDraft:
    """Prompt lookup: copies what follows the last tokens in the source, such as names, numbers, markup."""

    def start(self, source: Sequence[int]) -> Guess:
        """Guesses from the source only."""
        return lambda written, count: continuation(source, written, count)


class MemoryDraft:
    """The translation of the most similar known source, from a translation memory."""

    def __init__(self, pairs: Iterable[tuple[Sequence[int], Sequence[int]]]) -> None:
        """`pairs` are token ids of sources and translations."""
        self._sources: list[frozenset[int]] = []
        self._targets: list[Sequence[int]] = []
        self._rows: dict[int, list[int]] = defaultdict(list)
        for src, tgt in pairs:
            for token in set(src):
                self._rows[token].append(len(self._sources))
            self._sources.append(frozenset(src))
            self._targets.append(tgt)

    def start(self, source: Sequence[int]) -> Guess:
        """Guesses from the best match, or from the source if nothing matches."""
        match = self.most_similar(source)
        if match is None:
            return CopyDraft().start(source)

        def guess(written: Sequence[int], count: int) -> Sequence[int]:
            return match[:count] if not written else continuation(match, written, count)

        return guess

    def most_similar(self, source: Sequence[int]) -> Sequence[int] | None:
        """The translation of the most similar source; shared rare tokens weigh more."""
        total = len(self._sources)
        scores: dict[int, float] = defaultdict(float)
        for token in set(source):
            rows = self._rows.get(token, ())
            if len(rows) <= max(COMMON, total // COMMON):
                for row in rows:
                    scores[row] += math.log(1 + total / len(rows))
        if not scores:
            return None
        own = len(set(source))
        best = max(scores, key=lambda row: (scores[row] / (own + len(self._sources[row])), -row))
        return self._targets[best]


@runtime_checkable
class DraftState(Protocol):
    """The output of a draft model for one source."""

    @property
    def length(self) -> int: ...  # tokens read so far
    def feed(self, tokens: Sequence[int]) -> int: ...  # appends tokens and returns the most probable next one
    def truncate(self, length: int) -> None: ...


@runtime_checkable
class DraftingEngine(Protocol):
    """A search engine that can draft; `read` takes a source with its end tokens."""

    def read(self, source: Sequence[int]) -> DraftState: ...


class ModelDraft:
    """The greedy output of a smaller model with the same tokenizer."""

    def __init__(self, engine: Any, special: SpecialIds) -> None:
        self.engine: DraftingEngine = engine
        self.special = special

    def start(self, source: Sequence[int]) -> Guess:
        """Greedy output of the draft model for this source."""
        prompt, eos_id = self.special.prompt, self.special.eos_id
        output = self.engine.read(self.special.ended(source))

        def guess(written: Sequence[int], count: int) -> Sequence[int]:
            prefix = [*prompt, *written]
            output.truncate(min(output.length, len(prefix) - 1))  # keep the correct guesses
            guesses: list[int] = []
            while len(guesses) < count and (not guesses or guesses[-1] != eos_id):
                guesses.append(output.feed([*prefix, *guesses][output.length :]))
            return guesses

        return guess


def continuation(text: Sequence[int], written: Sequence[int], count: int) -> Sequence[int]:
    """The tokens that follow the last tokens of `written` in `text`; the longest match wins.

    >>> continuation([7, 8, 9, 8, 5], [1, 9, 8], 2)
    [5]
    """
    for size in range(min(LONGEST_MATCH, len(written)), 0, -1):
        tail = list(written[-size:])
        for end in range(size, len(text)):
            if list(text[end - size : end]) == tail:
                return list(text[end : end + count])
    return []


def draft_from(origin: str, source: Encode, target: Encode, small: Callable[[str], Draft]) -> Draft:
    """The draft for `origin`: "input" (copies the source), a translation memory, or `small(origin)` for a model folder.

    `source` and `target` encode texts of the memory with the tokenizer of the main model.
    """
    if origin == "input":
        return CopyDraft()
    if Path(origin).is_dir() or downloaded(origin):
        return small(origin)
    pairs = read_pairs(parse_corpora([origin]))
    return MemoryDraft((source(clean_text(src)), target(clean_text(tgt))) for src, tgt in pairs)

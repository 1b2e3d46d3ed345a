"""Where guesses for speculative decoding come from: the input itself, a translation memory, a smaller model.

A draft may guess as badly as it likes: it costs time, never a word of the output. Not here: the check (`speculative`).
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

from headwise.contract import Guess, SpecialIds

LONGEST_MATCH = 3  # pieces of context a place is looked up by
COMMON = 64  # a piece in more than 1/COMMON of a memory's sources says nothing about which of them is similar


class CopyDraft:
    """Names, numbers, markup: what follows in the source after the pieces just written (prompt lookup)."""

    def start(self, source: Sequence[int]) -> Guess:
        """Guesses from the source alone."""
        return lambda written, count: continuation(source, written, count)


class MemoryDraft:
    """The translation of the most similar known source, from a translation memory."""

    def __init__(self, pairs: Iterable[tuple[Sequence[int], Sequence[int]]]) -> None:
        """`pairs` are the token ids of sources and their translations."""
        self._sources: list[frozenset[int]] = []
        self._targets: list[Sequence[int]] = []
        self._rows: dict[int, list[int]] = defaultdict(list)
        for src, tgt in pairs:
            for token in set(src):
                self._rows[token].append(len(self._sources))
            self._sources.append(frozenset(src))
            self._targets.append(tgt)

    def start(self, source: Sequence[int]) -> Guess:
        """Guesses from the best match; from the source where nothing matches."""
        match = self.most_similar(source)
        if match is None:
            return CopyDraft().start(source)

        def guess(written: Sequence[int], count: int) -> Sequence[int]:
            return match[:count] if not written else continuation(match, written, count)

        return guess

    def most_similar(self, source: Sequence[int]) -> Sequence[int] | None:
        """The target whose source shares the most weight of pieces with `source`, rare pieces weighing more."""
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
class Drafting(Protocol):
    """What a model writes for one source: it is given tokens, and takes tokens back."""

    @property
    def length(self) -> int: ...  # tokens that it has read
    def feed(self, tokens: Sequence[int]) -> int: ...  # what is likeliest after these, which stand behind the others
    def truncate(self, length: int) -> None: ...


@runtime_checkable
class DraftEngine(Protocol):
    """A search engine whose model can draft: what it writes for a source with its end."""

    def read(self, source: Sequence[int]) -> Drafting: ...


class ModelDraft:
    """The greedy output of a smaller model with the same tokenizer."""

    def __init__(self, engine: Any, special: SpecialIds) -> None:
        self.engine: DraftEngine = engine
        self.special = special

    def start(self, source: Sequence[int]) -> Guess:
        """Guesses of the model for this source."""
        prompt, eos_id = self.special.prompt, self.special.eos_id
        output = self.engine.read(self.special.ended(source))

        def guess(written: Sequence[int], count: int) -> Sequence[int]:
            fed = [*prompt, *written]
            output.truncate(min(output.length, len(fed) - 1))  # of what was guessed, keep what was right
            guesses: list[int] = []
            while len(guesses) < count and (not guesses or guesses[-1] != eos_id):
                guesses.append(output.feed([*fed, *guesses][output.length :]))
            return guesses

        return guess


def continuation(text: Sequence[int], written: Sequence[int], count: int) -> Sequence[int]:
    """What follows in `text` where the last pieces of `written` occur in it; of several places, by the longest match.

    >>> continuation([7, 8, 9, 8, 5], [1, 9, 8], 2)
    [5]
    """
    for size in range(min(LONGEST_MATCH, len(written)), 0, -1):
        tail = list(written[-size:])
        for end in range(size, len(text)):
            if list(text[end - size : end]) == tail:
                return list(text[end : end + count])
    return []

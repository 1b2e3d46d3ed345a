"""Where guesses for speculative decoding come from: the input itself, a translation memory, a smaller model.

A draft may guess as badly as it likes: it costs time, never a word of the output. Not here: the check (`speculative`).
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch

from sightline.contract import EncoderDecoder, Guess, OwnSearch, SpecialIds
from sightline.decode.ranking import highest
from sightline.decode.speculative import cannot_step_back
from sightline.decode.steps import pad_sources

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


class ModelDraft:
    """The greedy output of a smaller model with the same tokenizer."""

    def __init__(self, model: EncoderDecoder | OwnSearch, special: SpecialIds) -> None:
        self.model = model
        self.special = special

    def start(self, source: Sequence[int]) -> Guess:
        """Guesses of the model for this source."""
        special = self.special
        output = _output(self.model, source, special)

        def guess(written: Sequence[int], count: int) -> Sequence[int]:
            output.truncate(min(output.length, len(written)))  # of what was guessed, keep what was right
            fed = [special.bos_id, *written]
            guesses: list[int] = []
            while len(guesses) < count and (not guesses or guesses[-1] != special.eos_id):
                guesses.append(output.feed([*fed, *guesses][output.length :]))
            return guesses

        return guess


@runtime_checkable
class Drafting(Protocol):
    """What a model writes for one source: it is told piece by piece, and takes pieces back."""

    @property
    def length(self) -> int: ...  # pieces that it has read
    def feed(self, tokens: Sequence[int]) -> int: ...  # what is likeliest after these, which stand behind the others
    def truncate(self, length: int) -> None: ...


@runtime_checkable
class Reads(Protocol):
    """A model of the compiled library: what it writes for a source with its end mark."""

    def read(self, source: Sequence[int]) -> Drafting: ...


class StepByStep:
    """An `Drafting` of a model of torch."""

    def __init__(self, model: Any, source: Sequence[int], special: SpecialIds) -> None:
        self._model, self._device = model, next(iter(model.parameters())).device
        with torch.inference_mode():
            src, src_mask = (x.to(self._device) for x in pad_sources([source], special))
            self._cache = model.start_cache(model.encode(src, src_mask), src_mask)
        if not hasattr(self._cache, "truncate"):
            raise cannot_step_back()

    @property
    def length(self) -> int:
        """As `Drafting.length`."""
        return self._cache.length

    def truncate(self, length: int) -> None:
        """As `Drafting.truncate`."""
        self._cache.truncate(length)

    @torch.inference_mode()
    def feed(self, tokens: Sequence[int]) -> int:
        """As `Drafting.feed`."""
        cache, new = self._cache, torch.tensor([list(tokens)], device=self._device)
        hidden = self._model.decode(new, cache.memory, cache.src_mask, cache)
        return int(highest(self._model.logits(hidden[:, -1]).float()))


def _output(model: Any, source: Sequence[int], special: SpecialIds) -> Drafting:
    own = isinstance(model, Reads)
    return model.read([*source, special.eos_id]) if own else StepByStep(model, source, special)


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

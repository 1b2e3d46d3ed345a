"""The library's search for the sources of fresh decodings: all of it at once, or a step at a time while somebody looks.

What it finds is what `decode.search` and `decode.sampling` find with torch. Not here: encoding the sources and the
parameters of networks (`network`).
"""

from collections.abc import Sequence
from ctypes import byref, c_void_p, cast
from dataclasses import replace
from typing import Any
from weakref import finalize

import numpy as np

from headwise.contract import Continuation, Hypothesis, SearchOptions
from headwise.native import library as c
from headwise.native.arrays import addresses, all_below, at, floats
from headwise.native.settings import ENDINGS, options_of


class Search:
    """One search, which may be run once or advanced to its end.

    Args:
        decodings: of the same sources by networks of one vocabulary, whose log-probabilities are averaged.
        settings: all but `rules` and `stop`. The first `begun` pieces of a prefix are certain and not in what is found.
        limits: `decode.engine.Bounds`; with `streams` outputs are drawn, `n_best` of each source.
        few: `decode.candidates.Candidates`, all that may be written; None: everything. C speaks of columns among its
            ids, and is told of everything else in such columns.
    """

    def __init__(self, decodings: Sequence[Any], settings: SearchOptions, limits: Any, few: Any = None) -> None:
        whole = [decoding.network.output for decoding in decodings]
        outputs = whole if few is None else [output.rows(few.ids) for output in whole]
        self._decodings, self._n_best, self._vocab = tuple(decodings), settings.n_best, outputs[0].d_out
        self._few, self._seed = few, settings.seed
        for pieces in (limits.prefix, limits.phrases):
            decodings[0].network.check_pieces(pieces[pieces >= 0], "tgt")
        if few is not None:
            settings, limits = _placed(settings, few), _with_prefix(limits, few)
        self._check(settings, limits)
        for decoding in decodings:
            decoding.network.know_positions(int(limits.max_length.max()))
        self._options, self._lists = options_of(settings, limits.streams is not None)
        members = addresses(decodings), addresses(outputs)
        ids = None if few is None else np.ascontiguousarray(few.ids, np.int32)
        barred = None if few is None else floats(np.where(few.allowed, 0, -np.inf))
        self._arguments = (
            byref(c.Members(*(cast(each, c_void_p) for each in members), len(decodings))),
            at(ids),
            at(barred),
            byref(self._options),
            byref(self._bounds(limits)),
            byref(self._results(int(limits.max_length.max()))),
        )
        self._kept = outputs, members, ids, barred  # what C reads
        self._address: int | None = None  # of a search that has begun
        self._failed = False

    def run(self) -> list[list[Hypothesis]]:
        """Up to `n_best` hypotheses for each source, best first."""
        self._done(c.needed().headwise_search(*self._arguments))
        return self.found()

    def advance(self, guesses: Sequence[int] = ()) -> list[list[Continuation]]:
        """What the next step ranked, best first, in a search for one source; no step where the search is over.

        Greedy search takes `guesses` of what follows: as many steps as they are right, and one.
        """
        assert self._decodings[0].sentences == self._options.copies == 1, "one output is looked at"
        assert not self._limits[-1].size, "nobody looks at a search for phrases"
        assert not self._failed, "what has failed does not go on"
        assert not len(guesses) or (self._options.beam_size == 1 and self._few is None), "guesses are for greedy search"
        self._decodings[0].network.check_pieces(np.array(guesses, np.int64), "tgt")
        self._begin()
        beam_size, steps = self._options.beam_size, 1 + len(guesses)
        most = 1 if beam_size == 1 else (1 + len(self._lists[0])) * beam_size
        counts, fed = np.zeros(steps, np.int32), np.array(guesses, np.int32)
        whole, real = np.zeros((3, steps, most), np.int32), np.zeros((2, steps, most), np.float32)
        ranked = c.Ranked(at(counts), *map(at, whole), *map(at, real))
        made = c.needed().headwise_search_step(self._address, at(fed), len(guesses), byref(ranked))
        self._done(made < 0)
        columns = zip(*(array.tolist() for array in (counts, *whole, *real)), strict=True)
        ranked = [list(zip(*of, strict=True))[:n] for n, *of in list(columns)[:made]]
        return [[Continuation(*self._ids([token]), *rest) for token, *rest in step] for step in ranked]

    def found(self) -> list[list[Hypothesis]]:
        """What has ended so far."""
        options, outputs = self._options, self._options.pool * self._options.copies
        ranked: list[list[Hypothesis]] = [[] for _ in range(self._decodings[0].sentences)]
        for i in np.flatnonzero(self._lengths):
            rows = (
                rows[i, options.begun : self._lengths[i]].tolist() for rows in (self._tokens, self._token_log_probs)
            )
            written, chances = rows
            pieces = written[:-1] if written[-1] in self._lists[0] else written
            score, log_prob = float(self._scores[i]), float(self._log_probs[i])
            ranked[i // outputs].append(Hypothesis(self._ids(pieces), score, log_prob, chances))
        return [sorted(found, key=lambda h: -h.score)[: self._n_best] for found in ranked]

    def _ids(self, columns: list[int]) -> list[int]:
        return columns if self._few is None else self._few.ids[columns].tolist()

    def _begin(self) -> None:
        if self._address is None:
            self._address = c.needed().headwise_search_start(*self._arguments)
            self._done(not self._address)
            finalize(self, c.needed().headwise_search_end, self._address).atexit = False

    def _done(self, failed: int) -> None:
        self._failed = bool(failed)
        self._decodings[0].done(failed)

    def _bounds(self, limits: Any) -> c.Limits:
        lengths = (np.ascontiguousarray(x, np.int32) for x in (limits.min_length, limits.max_length, limits.prefix))
        seed = (self._seed + 2**63) % 2**64 - 2**63  # its lowest 64 bits
        streams = None if limits.streams is None else np.array([seed, *limits.streams], np.int64)
        phrases = np.ascontiguousarray(limits.phrases, np.int32)
        self._limits = (*lengths, streams, phrases)
        return c.Limits(*map(at, self._limits[:4]), limits.prefix.shape[1], at(phrases), *phrases.shape[1:])

    def _results(self, longest: int) -> c.Found:
        n = self._decodings[0].sentences * self._options.copies * self._options.pool
        self._tokens, self._lengths = np.zeros((n, longest), np.int32), np.zeros(n, np.int32)
        self._token_log_probs = np.zeros((n, longest), np.float32)
        self._log_probs, self._scores = np.zeros(n, np.float32), np.zeros(n, np.float32)
        arrays = self._tokens, self._lengths, self._token_log_probs, self._log_probs, self._scores
        return c.Found(*map(at, arrays), longest)

    def _check(self, settings: SearchOptions, limits: Any) -> None:
        """What C goes by without looking: ids or columns among the outputs, and numbers of sentences."""
        first, prefix, few = self._decodings[0], limits.prefix, self._few
        assert all(decoding.goes_with(first) for decoding in self._decodings), "fresh decodings of the same sources"
        assert few is None or few.allowed.shape == (first.sentences, self._vocab)
        assert limits.min_length.shape == limits.max_length.shape == (first.sentences,)
        assert limits.streams is None or limits.streams.shape == (first.sentences,)
        assert prefix.ndim == 2 and len(prefix) == first.sentences
        assert all_below(prefix[prefix >= 0], self._vocab)
        assert 0 <= settings.begun <= prefix.shape[1] and (prefix[:, : settings.begun] >= 0).all()
        assert limits.max_length.min() > settings.begun and limits.max_length.max() < 1 << 30
        if limits.phrases.size:
            assert len(limits.phrases) == first.sentences and limits.phrases.max() < self._vocab
            assert limits.streams is None and settings.beam_size > 1 and settings.ending == ENDINGS[0]
        self._check_settings(settings, limits.streams is not None)

    def _check_settings(self, settings: SearchOptions, drawn: bool) -> None:
        assert 0 <= settings.bos_id < self._vocab and settings.no_repeat_ngram >= 0
        assert settings.n_best >= 1 and settings.beam_size >= 1
        assert drawn or settings.ending == ENDINGS[0] or settings.n_best <= settings.beam_size
        assert settings.forced_end is None or 0 <= settings.forced_end < self._vocab
        assert not drawn or (settings.temperature > 0 and settings.top_k >= 0 and settings.top_p > 0)


def _placed(settings: SearchOptions, few: Any) -> SearchOptions:
    """In columns among the candidates; what nobody may write is none of them, or is written by nobody."""

    def place(token: int) -> int:
        return int(few.columns(np.array(token)))

    return replace(
        settings,
        bos_id=place(settings.bos_id),
        eos_id=place(settings.eos_id),
        suppressed=tuple(map(place, settings.suppressed)),
        suppressed_first=tuple(map(place, settings.suppressed_first)),
        other_ends=tuple(map(place, settings.other_ends)),
        forced_end=None if settings.forced_end is None else place(settings.forced_end),
    )


def _with_prefix(limits: Any, few: Any) -> Any:
    """The same limits with a prefix and phrases of columns."""
    prefix, phrases = few.columns(limits.prefix), few.columns(limits.phrases)
    assert ((prefix >= 0) == (limits.prefix >= 0)).all(), "a prefix of what is on the shortlist"
    assert ((phrases >= 0) == (limits.phrases >= 0)).all(), "phrases of what is on the shortlist"
    return replace(limits, prefix=prefix, phrases=phrases)

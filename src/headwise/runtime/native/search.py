"""Search by the compiled library, at once or step by step, with its options as a C struct.

Results are those of `core.search` and `core.extensions.sampling` with torch. Sources are encoded in `network`.
"""

from collections.abc import Sequence
from ctypes import byref, c_void_p, cast
from dataclasses import replace
from typing import Any
from weakref import finalize

import numpy as np

from headwise.contract import FREE, Continuation, Hypothesis, SearchOptions, Stop
from headwise.device import usable_threads
from headwise.runtime.native import library as c
from headwise.runtime.native.arrays import addresses, all_below, at, floats
from headwise.runtime.native.threads import use_threads

EARLY_STOPPING = ("exact", "no", "yes", "never")  # in the order of `EarlyStopping` in search.h


class StopCallback:
    """Calls `stop` from C. The search ends at its first exception, which is in `error`."""

    def __init__(self, stop: Stop) -> None:
        self.error: BaseException | None = None
        self.function = c.STOP(lambda tokens, length: self._ends(stop, tokens[:length]))

    def _ends(self, stop: Stop, tokens: list[int]) -> bool:
        try:
            return self.error is not None or bool(stop([tokens])[0])
        except BaseException as error:  # also Ctrl-C, which C would lose
            self.error = error
            return True


def options_of(settings: SearchOptions, sampled: bool) -> tuple[c.Options, list[Any]]:
    """The C struct, and the arrays it points to, which must outlive it; the first one holds the end tokens.

    `stop_function` is not in it. With `sampled`, `n_best` independent samples replace the beam.
    """
    assert not settings.ngram_context, "set by the compiled library itself"
    assert not settings.rules, "not supported by the compiled library"
    assert settings.early_stopping in EARLY_STOPPING
    beam_size, copies = (1, settings.n_best) if sampled else (settings.beam_size, 1)
    ends = (settings.eos_id, *settings.other_ends)
    kept = [np.array(ids, np.int32) for ids in (ends, settings.never_generated, settings.suppressed_first)]
    options = c.Options(
        beam_size=beam_size,
        pool=settings.n_best if settings.early_stopping == EARLY_STOPPING[0] and not sampled else beam_size,
        bos_id=settings.bos_id,
        copies=copies,
        n_forced=settings.n_forced,
        forced_end=settings.forced_end or 0,
        end_at=0 if settings.forced_end is None else settings.end_at,
        early_stopping=EARLY_STOPPING.index(settings.early_stopping),
        length_penalty=settings.length_penalty,
        no_repeat_ngram=settings.no_repeat_ngram,
        bos_in_ngrams=settings.bos_in_ngrams,
        top_k=settings.top_k,
        temperature=settings.temperature,
        top_p=settings.top_p,
        among_allowed=settings.among_allowed,
        n_biases=len(settings.sequence_bias),
        repetition_penalty=settings.repetition_penalty,
        of_logits=settings.of_logits,
    )
    if times := settings.timestamps:
        options.first_timestamp, options.no_timestamps = times.first, times.never
        options.latest_first = -1 if times.latest_first is None else times.latest_first
    options.ends, options.suppressed, options.suppressed_first = (
        c.Ids(c_void_p(ids.ctypes.data), len(ids)) for ids in kept
    )
    if settings.sequence_bias:
        longest = max(len(sequence) for sequence, _ in settings.sequence_bias)
        rows = [[*[FREE] * (longest - len(sequence)), *sequence] for sequence, _ in settings.sequence_bias]
        biased, biases = np.array(rows, np.int32), np.array([bias for _, bias in settings.sequence_bias], np.float32)
        options.biased, options.biases, options.biased_length = at(biased), at(biases), longest
        kept += [biased, biases]
    return options, kept


class Search:
    """One search: call `run` once, or `advance` until it ends.

    Args:
        decodings: new decodings of the same sources by networks with one vocabulary; their log-probabilities are
            averaged.
        settings: with candidates without `stop_function`, `timestamps` and `among_allowed`.
        limits: `runtime.search.request.Bounds`; with `streams`, `n_best` samples of each source.
        candidates: `runtime.search.candidates.Candidates`, or None for the whole vocabulary. C works with columns,
            which are indices into the candidates; all ids are converted here.
    """

    def __init__(self, decodings: Sequence[Any], settings: SearchOptions, limits: Any, candidates: Any = None) -> None:
        whole = [decoding.network.output for decoding in decodings]
        outputs = whole if candidates is None else [output.rows(candidates.ids) for output in whole]
        self._decodings, self._n_best, self._vocab = tuple(decodings), settings.n_best, outputs[0].d_out
        self._candidates, self._seed = candidates, settings.seed
        for tokens in (limits.prefix, limits.phrases):
            decodings[0].network.check_tokens(tokens[tokens >= 0], "tgt")
        if candidates is not None:
            settings, limits = _to_columns(settings, candidates), _limits_in_columns(limits, candidates)
        self._check(settings, limits)
        for decoding in decodings:
            longest = decoding.prompt_lengths + limits.max_length - (decoding.prompt_lengths > 0)
            decoding.network.extend_positions(int(longest.max()))
        self._options, self._lists = options_of(settings, limits.streams is not None)
        self._stop = StopCallback(settings.stop_function) if settings.stop_function else None
        if self._stop:
            assert candidates is None, "stop strings are for the whole vocabulary"
            self._options.stop = self._stop.function
        members = addresses(decodings), addresses(outputs)
        ids = None if candidates is None else np.ascontiguousarray(candidates.ids, np.int32)
        barred = None if candidates is None else floats(np.where(candidates.allowed, 0, -np.inf))
        self._arguments = (
            byref(c.Members(*(cast(each, c_void_p) for each in members), len(decodings))),
            at(ids),
            at(barred),
            byref(self._options),
            byref(self._bounds(limits)),
            byref(self._results(int(limits.max_length.max()))),
        )
        self._kept = outputs, members, ids, barred  # C has pointers to them
        self._address: int | None = None  # of a started step-by-step search
        self._threads = 1  # of its steps
        self._failed = False

    def run(self) -> list[list[Hypothesis]]:
        """Up to `n_best` hypotheses for each source, best first."""
        self._done(c.needed().headwise_search(*self._arguments))
        return self.hypotheses()

    def advance(self, guesses: Sequence[int] = ()) -> list[list[Continuation]]:
        """See `StepwiseSearch.advance`; for one source."""
        assert self._decodings[0].sentences == self._options.copies == 1, "one source and one output"
        assert not self._limits[-1].size, "no phrases"
        assert not self._failed, "the search has failed"
        greedy = self._options.beam_size == 1 and self._candidates is None
        assert greedy or not len(guesses), "guesses are for greedy search"
        self._decodings[0].network.check_tokens(np.array(guesses, np.int64), "tgt")
        self._begin()
        beam_size, steps = self._options.beam_size, 1 + len(guesses)
        width = 1 if beam_size == 1 else (1 + len(self._lists[0])) * beam_size
        counts, guessed = np.zeros(steps, np.int32), np.array(guesses, np.int32)
        ints, reals = np.zeros((3, steps, width), np.int32), np.zeros((2, steps, width), np.float32)
        ranked = c.Ranked(at(counts), *map(at, ints), *map(at, reals))
        use_threads(self._threads)
        made = c.needed().headwise_search_step(self._address, at(guessed), len(guesses), byref(ranked))
        self._done(made < 0)
        columns = zip(*(array.tolist() for array in (counts, *ints, *reals)), strict=True)
        ranked = [list(zip(*of, strict=True))[:n] for n, *of in list(columns)[:made]]
        return [[Continuation(*self._ids([token]), *rest) for token, *rest in step] for step in ranked]

    def hypotheses(self) -> list[list[Hypothesis]]:
        """The finished hypotheses of each source, best first."""
        options, outputs = self._options, self._options.pool * self._options.copies
        ranked: list[list[Hypothesis]] = [[] for _ in range(self._decodings[0].sentences)]
        for i in np.flatnonzero(self._lengths):
            rows = (
                rows[i, options.n_forced : self._lengths[i]].tolist() for rows in (self._tokens, self._token_log_probs)
            )
            tokens, token_log_probs = rows
            without_end = tokens[:-1] if tokens[-1] in self._lists[0] else tokens
            score, log_prob = float(self._scores[i]), float(self._log_probs[i])
            ranked[i // outputs].append(Hypothesis(self._ids(without_end), score, log_prob, token_log_probs))
        return [sorted(hypotheses, key=lambda h: -h.score)[: self._n_best] for hypotheses in ranked]

    def _ids(self, columns: list[int]) -> list[int]:
        return columns if self._candidates is None else self._candidates.ids[columns].tolist()

    def _begin(self) -> None:
        if self._address is None:
            self._threads = usable_threads()
            self._address = c.needed().headwise_search_start(*self._arguments)
            self._done(not self._address)
            finalize(self, c.needed().headwise_search_end, self._address).atexit = False

    def _done(self, failed: int) -> None:
        self._failed = bool(failed or (self._stop and self._stop.error))
        self._decodings[0].done(failed)
        if self._stop and self._stop.error:
            raise self._stop.error

    def _bounds(self, limits: Any) -> c.Limits:
        lengths = (np.ascontiguousarray(x, np.int32) for x in (limits.min_length, limits.max_length, limits.prefix))
        seed = (self._seed + 2**63) % 2**64 - 2**63  # the lowest 64 bits
        streams = None if limits.streams is None else np.array([seed, *limits.streams], np.int64)
        phrases = np.ascontiguousarray(limits.phrases, np.int32)
        context = None if limits.context is None else np.ascontiguousarray(limits.context, np.int32)
        self._limits = (*lengths, streams, context, phrases)
        of_phrases = at(phrases), *phrases.shape[1:]
        of_context = at(context), 0 if context is None else context.shape[1]
        return c.Limits(*map(at, self._limits[:4]), limits.prefix.shape[1], *of_phrases, *of_context)

    def _results(self, longest: int) -> c.Found:
        n = self._decodings[0].sentences * self._options.copies * self._options.pool
        self._tokens, self._lengths = np.zeros((n, longest), np.int32), np.zeros(n, np.int32)
        self._token_log_probs = np.zeros((n, longest), np.float32)
        self._log_probs, self._scores = np.zeros(n, np.float32), np.zeros(n, np.float32)
        arrays = self._tokens, self._lengths, self._token_log_probs, self._log_probs, self._scores
        return c.Found(*map(at, arrays), longest)

    def _check(self, settings: SearchOptions, limits: Any) -> None:
        """Check what C does not check: ids or columns, and the number of sentences."""
        first, prefix, candidates = self._decodings[0], limits.prefix, self._candidates
        assert all(decoding.matches(first) for decoding in self._decodings), "new decodings of the same sources"
        assert candidates is None or candidates.allowed.shape == (first.sentences, self._vocab)
        assert limits.min_length.shape == limits.max_length.shape == (first.sentences,)
        assert limits.streams is None or limits.streams.shape == (first.sentences,)
        assert prefix.ndim == 2 and len(prefix) == first.sentences
        assert all_below(prefix[prefix >= 0], self._vocab)
        assert 0 <= settings.n_forced <= prefix.shape[1] and (prefix[:, : settings.n_forced] >= 0).all()
        assert limits.max_length.min() > settings.n_forced and limits.max_length.max() < 1 << 30
        if limits.phrases.size:
            assert len(limits.phrases) == first.sentences and limits.phrases.max() < self._vocab
            assert limits.streams is None and settings.beam_size > 1 and settings.early_stopping == EARLY_STOPPING[0]
        assert limits.context is None or (limits.context.ndim == 2 and len(limits.context) == first.sentences)
        self._check_settings(settings, limits.streams is not None)

    def _check_settings(self, settings: SearchOptions, sampled: bool) -> None:
        speech, times = settings.timestamps or settings.among_allowed, settings.timestamps
        assert not (speech and (self._candidates or settings.n_forced or settings.forced_end is not None)), (
            "speech only"
        )
        assert not times or (0 <= times.never < self._vocab and 0 < times.first < self._vocab), "ids of the vocabulary"
        assert not times or times.latest_first is None or 0 <= times.latest_first < self._vocab
        assert not times or 0 <= settings.eos_id <= times.first, "text, end and timestamps in this order"
        assert 0 <= settings.bos_id < self._vocab and settings.no_repeat_ngram >= 0
        assert settings.n_best >= 1 and settings.beam_size >= 1
        assert sampled or settings.early_stopping == EARLY_STOPPING[0] or settings.n_best <= settings.beam_size
        assert settings.forced_end is None or 0 <= settings.forced_end < self._vocab
        assert settings.repetition_penalty > 0
        assert all(0 <= token < self._vocab for sequence, _ in settings.sequence_bias for token in sequence)
        assert all(sequence for sequence, _ in settings.sequence_bias)
        assert not sampled or (settings.temperature > 0 and settings.top_k >= 0 and settings.top_p > 0)


def _to_columns(settings: SearchOptions, candidates: Any) -> SearchOptions:
    """The options with ids replaced by columns."""

    def column(token: int) -> int:
        return int(candidates.columns(np.array(token)))

    biased = [(tuple(map(column, sequence)), bias) for sequence, bias in settings.sequence_bias]
    return replace(
        settings,
        bos_id=column(settings.bos_id),
        eos_id=column(settings.eos_id),
        suppressed=tuple(map(column, settings.never_generated)),
        suppressed_first=tuple(map(column, settings.suppressed_first)),
        other_ends=tuple(map(column, settings.other_ends)),
        forced_end=None if settings.forced_end is None else column(settings.forced_end),
        sequence_bias=tuple((sequence, bias) for sequence, bias in biased if FREE not in sequence),
    )


def _limits_in_columns(limits: Any, candidates: Any) -> Any:
    """The limits with ids replaced by columns."""
    prefix, phrases = candidates.columns(limits.prefix), candidates.columns(limits.phrases)
    assert ((prefix >= 0) == (limits.prefix >= 0)).all(), "the prefix must be on the shortlist"
    assert ((phrases >= 0) == (limits.phrases >= 0)).all(), "phrases must be on the shortlist"
    return replace(limits, prefix=prefix, phrases=phrases)

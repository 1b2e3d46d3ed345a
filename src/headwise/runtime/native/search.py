"""Search by the compiled library, at once or step by step, with its options as a C struct.

Results are those of `core.search` and `core.extensions.sampling` with torch. Sources are encoded in `network`.
"""

from collections.abc import Mapping, Sequence
from ctypes import Structure, byref, c_void_p, cast
from dataclasses import replace
from typing import Any, TypeVar
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from headwise.config.settings import EARLY_STOPPING
from headwise.contract import FREE, Continuation, Hypothesis, Limits, SearchOptions, Stop, TimestampRules
from headwise.device import usable_threads
from headwise.runtime.native import library as c
from headwise.runtime.native.arrays import addresses, all_below, at, floats
from headwise.runtime.native.threads import use_threads

Struct = TypeVar("Struct", bound=Structure)


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


def options_of(options: SearchOptions, sampled: bool) -> tuple[c.Options, dict[str, NDArray[Any]]]:
    """The C struct, and the arrays it points to by their names, which must outlive it.

    `stop` is NULL. With `sampled`, `n_best` independent samples replace the beam.
    """
    assert not options.ngram_context, "set by the compiled library itself"
    assert not options.rules, "not supported by the compiled library"
    assert options.early_stopping in EARLY_STOPPING
    beam_size, copies = (1, options.n_best) if sampled else (options.beam_size, 1)
    times, biases = options.timestamps or TimestampRules(0, 0, 0), options.sequence_bias
    lists = {
        "ends": options.ends,
        "suppressed": options.never_generated,
        "suppressed_first": options.suppressed_first,
    }
    arrays = {name: np.array(ids, np.int32) for name, ids in lists.items()}
    own: dict[str, Any] = {name: c.Ids(at(ids), len(ids)) for name, ids in arrays.items()}
    longest = max((len(sequence) for sequence, _ in biases), default=0)
    if biases:
        rows = [[*[FREE] * (longest - len(sequence)), *sequence] for sequence, _ in biases]
        arrays |= {"biased": np.array(rows, np.int32), "biases": np.array([bias for _, bias in biases], np.float32)}
    own |= {name: at(arrays.get(name)) for name in ("biased", "biases")}
    own |= {
        "beam_size": beam_size,
        "pool": options.n_best if options.early_stopping == EARLY_STOPPING[0] and not sampled else beam_size,
        "copies": copies,
        "forced_end": options.forced_end or 0,
        "end_at": 0 if options.forced_end is None else options.end_at,
        "early_stopping": EARLY_STOPPING.index(options.early_stopping),
        "stop": c.STOP(),
        "first_timestamp": times.first,
        "no_timestamps": times.never,
        "latest_first": -1 if times.latest_first is None else times.latest_first,
        "n_biases": len(biases),
        "biased_length": longest,
    }
    return filled(c.Options, own, options), arrays


def filled(kind: type[Struct], own: Mapping[str, Any], record: object) -> Struct:
    """A C struct with its `own` values; the others are those that the record has under the same names."""
    names = [field[0] for field in kind._fields_]
    assert own.keys() <= {*names}, f"unknown fields: {own.keys() - {*names}}"
    return kind(**{name: own[name] if name in own else getattr(record, name) for name in names})


class Search:
    """One search: call `run` once, or `advance` until it ends.

    Args:
        decodings: new decodings of the same sources by networks with one vocabulary; their log-probabilities are
            averaged.
        settings: with candidates without `stop_function`, `timestamps` and `among_allowed`.
        limits: with `streams`, `n_best` samples of each source; without `barred`.
        candidates: `runtime.search.candidates.Candidates`, or None for the whole vocabulary. C works with columns,
            which are indices into the candidates; all ids are converted here.
    """

    def __init__(
        self, decodings: Sequence[Any], settings: SearchOptions, limits: Limits, candidates: Any = None
    ) -> None:
        whole = [decoding.network.output for decoding in decodings]
        outputs = whole if candidates is None else [output.rows(candidates.ids) for output in whole]
        self._decodings, self._n_best, self._vocab = tuple(decodings), settings.n_best, outputs[0].d_out
        self._candidates, self._seed = candidates, settings.seed
        for tokens in (limits.prefix, limits.phrases):
            if tokens is not None:
                decodings[0].network.check_tokens(tokens[tokens >= 0], "tgt")
        if candidates is not None:
            settings, limits = _to_columns(settings, candidates), _limits_in_columns(limits, candidates)
        self._check(settings, limits)
        for decoding in decodings:
            longest = decoding.prompt_lengths + limits.max_length - (decoding.prompt_lengths > 0)
            decoding.network.extend_positions(int(longest.max()))
        self._options, self._arrays = options_of(settings, limits.streams is not None)
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
            byref(self._in_c(limits)),
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
        assert self._limits.phrases is None, "no phrases"
        assert not self._failed, "the search has failed"
        greedy = self._options.beam_size == 1 and self._candidates is None
        assert greedy or not len(guesses), "guesses are for greedy search"
        self._decodings[0].network.check_tokens(np.array(guesses, np.int64), "tgt")
        self._begin()
        beam_size, steps = self._options.beam_size, 1 + len(guesses)
        width = 1 if beam_size == 1 else (1 + len(self._arrays["ends"])) * beam_size
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
            without_end = tokens[:-1] if tokens[-1] in self._arrays["ends"] else tokens
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

    def _in_c(self, limits: Limits) -> c.Limits:
        seed = (self._seed + 2**63) % 2**64 - 2**63  # the lowest 64 bits
        given = limits.each(lambda array: np.ascontiguousarray(array, np.int32))
        if limits.streams is not None:
            given = replace(given, streams=np.array([seed, *limits.streams], np.int64))
        self._limits = given
        n_phrases, phrase_length = (0, 0) if given.phrases is None else given.phrases.shape[1:]
        sizes = {
            "prefix_length": given.prefix.shape[1],
            "n_phrases": n_phrases,
            "phrase_length": phrase_length,
            "context_length": 0 if given.context is None else given.context.shape[1],
        }
        return filled(c.Limits, sizes, given.each(at))

    def _results(self, longest: int) -> c.Found:
        n = self._decodings[0].sentences * self._options.copies * self._options.pool
        self._tokens, self._lengths = np.zeros((n, longest), np.int32), np.zeros(n, np.int32)
        self._token_log_probs = np.zeros((n, longest), np.float32)
        self._log_probs, self._scores = np.zeros(n, np.float32), np.zeros(n, np.float32)
        arrays = self._tokens, self._lengths, self._token_log_probs, self._log_probs, self._scores
        return c.Found(*map(at, arrays), longest)

    def _check(self, settings: SearchOptions, limits: Limits) -> None:
        """Check what C does not check: ids or columns, and the number of sentences."""
        first, prefix, candidates = self._decodings[0], limits.prefix, self._candidates
        assert all(decoding.matches(first) for decoding in self._decodings), "new decodings of the same sources"
        assert candidates is None or candidates.allowed.shape == (first.sentences, self._vocab)
        assert limits.barred is None, "the compiled library has columns instead"
        assert limits.min_length.shape == limits.max_length.shape == (first.sentences,)
        assert limits.streams is None or limits.streams.shape == (first.sentences,)
        assert prefix.ndim == 2 and len(prefix) == first.sentences
        assert all_below(prefix[prefix >= 0], self._vocab)
        assert 0 <= settings.n_forced <= prefix.shape[1] and (prefix[:, : settings.n_forced] >= 0).all()
        assert limits.max_length.min() > settings.n_forced and limits.max_length.max() < 1 << 30
        if limits.phrases is not None:
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


def _limits_in_columns(limits: Limits, candidates: Any) -> Limits:
    """The limits with ids replaced by columns."""
    given = {name: ids for name in ("prefix", "phrases") if (ids := getattr(limits, name)) is not None}
    columns = {name: candidates.columns(ids) for name, ids in given.items()}
    for name, ids in given.items():
        assert ((columns[name] >= 0) == (ids >= 0)).all(), f"{name}: must be on the shortlist"
    return replace(limits, **columns)

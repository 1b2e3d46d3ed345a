"""Search options as a C struct."""

from ctypes import c_void_p
from typing import Any

import numpy as np

from headwise.contract import FREE, SearchOptions, Stop
from headwise.native import library as c
from headwise.native.arrays import at

EARLY_STOPPING = ("exact", "no", "yes", "never")  # in the order of `Ending` in search.h


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

    `stop` is not in it. With `sampled`, `n_best` independent samples replace the beam.
    """
    assert not settings.ngram_context, "set by the compiled library itself"
    assert not settings.rules, "not supported by the compiled library"
    assert settings.early_stopping in EARLY_STOPPING
    beam_size, copies = (1, settings.n_best) if sampled else (settings.beam_size, 1)
    ends = (settings.eos_id, *settings.other_ends)
    kept = [np.array(ids, np.int32) for ids in (ends, settings.suppressed, settings.suppressed_first)]
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

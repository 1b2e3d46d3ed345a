"""What a compiled search is told, for C."""

from ctypes import c_void_p

import numpy as np

from headwise.contract import SearchOptions
from headwise.native import library as c
from headwise.native.arrays import Ints

ENDINGS = ("unsurpassed", "pool_filled", "pool_filled_early", "pool_filled_patient")  # in the order of search.c


def options_of(settings: SearchOptions, drawn: bool) -> tuple[c.Options, list[Ints]]:
    """The settings for C, and the lists of ids they point to, which must outlive them: first the end marks.

    Where outputs are `drawn`, as many samples as there are hypotheses otherwise, each by itself.
    """
    assert not (settings.rules or settings.stop), "C does not call Python"
    assert not settings.counted, "C knows what it has read"
    assert settings.ending in ENDINGS
    beam_size, copies = (1, settings.n_best) if drawn else (settings.beam_size, 1)
    ends = (settings.eos_id, *settings.other_ends)
    kept = [np.array(ids, np.int32) for ids in (ends, settings.suppressed, settings.suppressed_first)]
    options = c.Options(
        beam_size=beam_size,
        pool=settings.n_best if settings.ending == ENDINGS[0] and not drawn else beam_size,
        bos_id=settings.bos_id,
        copies=copies,
        begun=settings.begun,
        forced_end=settings.forced_end or 0,
        end_at=0 if settings.forced_end is None else settings.end_at,
        ending=ENDINGS.index(settings.ending),
        length_penalty=settings.length_penalty,
        no_repeat_ngram=settings.no_repeat_ngram,
        start_counts=settings.start_counts,
        top_k=settings.top_k,
        temperature=settings.temperature,
        top_p=settings.top_p,
    )
    options.ends, options.suppressed, options.suppressed_first = (
        c.Ids(c_void_p(ids.ctypes.data), len(ids)) for ids in kept
    )
    return options, kept

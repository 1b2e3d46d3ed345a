"""What a compiled search is told, for C, and what it finds."""

from ctypes import c_void_p
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from sightline.native import library as c

Ints = NDArray[Any]  # of whole numbers
ENDINGS = ("unsurpassed", "pool_filled", "pool_filled_early", "pool_filled_patient")  # in the order of search.c


@runtime_checkable
class SearchSettings(Protocol):
    """What a search is told; `decode.search.SearchOptions` says what it means."""

    @property
    def beam_size(self) -> int: ...
    @property
    def n_best(self) -> int: ...
    @property
    def length_penalty(self) -> float: ...
    @property
    def bos_id(self) -> int: ...
    @property
    def eos_id(self) -> int: ...
    @property
    def suppressed(self) -> tuple[int, ...]: ...


@runtime_checkable
class PoolSettings(SearchSettings, Protocol):
    """The same where a search ends as those of `transformers`; `decode.contract.PoolOptions` says what it means."""

    @property
    def other_ends(self) -> tuple[int, ...]: ...
    @property
    def suppressed_first(self) -> tuple[int, ...]: ...
    @property
    def begun(self) -> int: ...
    @property
    def forced_end(self) -> int | None: ...
    @property
    def end_at(self) -> int: ...
    @property
    def ending(self) -> str: ...


@dataclass(frozen=True)
class Found:
    """One hypothesis: ids without an end mark, and log-probabilities with it."""

    tokens: list[int]
    score: float
    log_prob: float
    token_log_probs: list[float]


def options_of(settings: SearchSettings) -> tuple[c.Options, list[Ints]]:
    """The settings for C, and the lists of ids they point to, which must outlive them: first the end marks."""
    pool = settings if isinstance(settings, PoolSettings) else None
    ends = (settings.eos_id, *(pool.other_ends if pool else ()))
    kept = [np.array(ids, np.int32) for ids in (ends, settings.suppressed, pool.suppressed_first if pool else ())]
    forced = pool is not None and pool.forced_end is not None
    options = c.Options(
        beam_size=settings.beam_size,
        pool=settings.beam_size if pool else settings.n_best,
        bos_id=settings.bos_id,
        begun=pool.begun if pool else 0,
        forced_end=pool.forced_end if pool and forced else 0,
        end_at=pool.end_at if pool and forced else 0,
        ending=ENDINGS.index(pool.ending if pool else "unsurpassed"),
        length_penalty=settings.length_penalty,
    )
    options.ends, options.suppressed, options.suppressed_first = (
        c.Ids(c_void_p(ids.ctypes.data), len(ids)) for ids in kept
    )
    return options, kept


def found_of(tokens: list[int], token_log_probs: list[float], log_prob: float, score: float, ends: Ints) -> Found:
    """A hypothesis of which all tokens are given, its end mark among them."""
    return Found(tokens[:-1] if tokens[-1] in ends else tokens, score, log_prob, token_log_probs)

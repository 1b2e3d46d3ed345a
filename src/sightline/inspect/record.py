"""What the inspector hands over: plain records of one translation, for reading, drawing and saving.

`attend.py` and `trace.py` make them from a model; the views (page, picture, terminal) read nothing else. Arrays are
numpy, in float32; numbers of layers, heads and pieces count from 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class Word:
    """A word of a text and the pieces `start:stop` that spell it."""

    text: str
    start: int
    stop: int


@dataclass(frozen=True)
class AttentionRecord:
    """Attention weights of one pair; each row (query) sums to one.

    A layer that was not asked for, or an architecture without such attention, has None in its place (or an empty
    list). `heads` are all heads of the layer, in the model's numbering, unless `attend` was asked for some.

    The decoder reads `tgt_in`: row t of `decoder` and `cross` belongs to the decoder's input at t, and predicts
    `tgt_pieces[t]`. Column t of `decoder` is the input at t: `<s>`, then `tgt_pieces` but the last.
    """

    text: str  # the source
    translation: str  # what was given or made
    src_pieces: Sequence[str]  # as the encoder read them, end mark included
    tgt_pieces: Sequence[str]  # as the decoder wrote them, end mark included
    src_words: Sequence[Word]
    tgt_words: Sequence[Word]
    encoder: "Sequence[Float[np.ndarray, 'heads src src'] | None]"  # over layers
    decoder: "Sequence[Float[np.ndarray, 'heads tgt tgt'] | None]"
    cross: "Sequence[Float[np.ndarray, 'heads tgt src'] | None]"


@dataclass(frozen=True)
class Candidate:
    """A piece that could come next and its log-probability (natural)."""

    piece: str
    log_prob: float


@dataclass(frozen=True)
class Position:
    """One position of the target: what the model would have written there."""

    piece: str  # what was written
    candidates: Sequence[Candidate]  # likeliest first
    layers: Sequence[Sequence[Candidate]]  # the same after each decoder layer (logit lens), the last layer last
    residual: Sequence[float]  # Euclidean norm of the residual stream: embedding, then after each decoder layer


@dataclass(frozen=True)
class BeamNode:
    """A hypothesis of the beam: its parent with one piece more."""

    parent: int  # index into `Trace.beam`; -1 for the first pieces
    step: int  # pieces before this one
    piece: str
    log_prob: float  # of the whole hypothesis so far
    score: float  # what the beam ranks by: log_prob over the length penalty
    status: str  # "kept", "pruned", "finished" or "chosen" (on the path of the translation)


@dataclass(frozen=True)
class Trace:
    """How a translation came about, position by position."""

    positions: Sequence[Position]
    beam: Sequence[BeamNode]  # parents before children; empty where no search ran

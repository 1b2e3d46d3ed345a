"""What the inspector hands over: plain records of one translation, for reading, drawing and saving.

`attend.py`, `attribution.py` and `trace.py` make them from a model; the views (page, picture, terminal) read nothing
else. Arrays are numpy, in float32; numbers of layers, heads and pieces count from 0.
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
    # Over layers; the number of heads may differ from one to the next.
    encoder: Sequence[Float[np.ndarray, "_ src src"] | None]
    decoder: Sequence[Float[np.ndarray, "_ tgt tgt"] | None]
    cross: Sequence[Float[np.ndarray, "_ tgt src"] | None]

    def _repr_html_(self) -> str:
        """The page, as a notebook shows it: in a frame of its own."""
        from sightline.inspect.page.contents import page_contents
        from sightline.inspect.page.document import notebook_frame

        return notebook_frame(page_contents(self))


@dataclass(frozen=True)
class Attribution:
    """By how much each source piece raised or lowered the log-probability of each target piece (natural logarithms).

    Measured against a source of the same length without any pieces in it. A row sums to `log_probs - baseline`; by how
    much it misses that is `gap`. Source marks have no share; in `words` sums over the pieces of source and target word.
    """

    text: str
    translation: str
    src_pieces: Sequence[str]
    tgt_pieces: Sequence[str]
    src_words: Sequence[Word]
    tgt_words: Sequence[Word]
    pieces: Float[np.ndarray, "tgt src"]
    words: Float[np.ndarray, "tgt_words src_words"]
    log_probs: Float[np.ndarray, " tgt"]  # of each target piece, given the source and the pieces before it
    baseline: Float[np.ndarray, " tgt"]  # the same, given no source

    @property
    def gap(self) -> float:
        """The largest error of a row: 0 would be exact; more `steps` make it smaller."""
        return float(np.abs(self.pieces.sum(1) - (self.log_probs - self.baseline)).max())


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
    residual: Sequence[float]  # Euclidean norm of the residual stream: embedding, then after each decoder layer;
    # empty for architectures other than the Transformer, whose `layers` hold the last one alone


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

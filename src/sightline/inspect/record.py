"""What the inspector hands over: plain records of one input, for reading, drawing and saving.

A record depends on what the network has (self-attention of an encoder or a decoder, attention from one to the other)
and on what stands along its axes (pieces of a text, patches of a picture, times of a sound), never on whose network it
is. `attend.py`, `attribution.py` and `trace.py` make records; the views (page, picture, terminal) read nothing else.
Arrays are numpy, in float32; numbers of layers, heads and pieces count from 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, UInt8

NEXT = "<next>"  # what would follow a text that only reads on
# The two decoder steps that concern a target piece: the step that predicts it, and the next one, which reads it as its
# input. Heads differ in which of the two looks at the source of the piece (Chen et al. 2020, arXiv:2004.14837).
ROWS = ("predicts", "reads")


@dataclass(frozen=True)
class Word:
    """A word of a text and the pieces `start:stop` that spell it."""

    text: str
    start: int
    stop: int


@dataclass(frozen=True)
class Patches:
    """A picture, cut into squares row by row."""

    pixels: UInt8[np.ndarray, "height width 3"]  # as the network was given it: resized and cropped, in plain colours
    rows: int
    columns: int
    n_before: int  # positions before the first patch, of no patch: a class token, DeiT's second one


@dataclass(frozen=True)
class Times:
    """A sound, cut into stretches of one length."""

    step: float  # seconds of a stretch
    loudness: Float32[np.ndarray, " stretches"]  # 0 to 1; the silence behind the sound, if any, is no stretch


@dataclass(frozen=True)
class Axis:
    """What stands along one side of attention weights, position by position: pieces of a text, patches, times."""

    labels: Sequence[str] = ()  # pieces as they were read or written, marks included; names of patches; seconds
    words: Sequence[Word] = ()  # of pieces
    of: Patches | Times | None = None  # None = a text

    @property
    def drawn(self) -> list[str]:
        """The labels as views write them: what is no piece of a text begins anew, like a piece that begins a word."""
        return list(self.labels) if self.of is None else [mark_free(label) for label in self.labels]


def mark_free(label: str) -> str:
    """A label behind the blank that begins a piece, but for marks such as `<class>`."""
    return label if label.startswith("<") else f"\u2581{label}"


class Axes:
    """What both sides of a record are called where they are texts."""

    src: Axis
    tgt: Axis

    @property
    def src_pieces(self) -> Sequence[str]:
        """As the encoder read them, end mark included."""
        return self.src.labels

    @property
    def tgt_pieces(self) -> Sequence[str]:
        """As the decoder wrote them, end mark included."""
        return self.tgt.labels

    @property
    def src_words(self) -> Sequence[Word]:
        return self.src.words

    @property
    def tgt_words(self) -> Sequence[Word]:
        return self.tgt.words


@dataclass(frozen=True)
class AttentionRecord(Axes):
    """Attention weights of one input, for the stacks that its network has; each row (query) sums to one.

    A layer that was not asked for has None in its place; an attention that the network lacks is an empty list, and so
    is an axis that it lacks: an encoder alone has no `tgt`, a decoder alone no `src`. `heads` are all heads of the
    layer, in the model's numbering, unless `attend` was asked for some.

    The decoder reads `read`: row t of `decoder` and `cross` belongs to the decoder's input at t, and predicts label t
    of `tgt`. Column t of `decoder` is the input at t: the start mark, then what was written but the last; of a decoder
    alone the text, whose last row predicts what nobody has written, `NEXT`.
    """

    text: str  # the source; the name of a file, where it is a picture or a sound
    translation: str  # what was given or made; "" where the network writes nothing
    src: Axis  # along the encoder
    tgt: Axis  # what the decoder writes
    read: Sequence[str]  # what the decoder reads
    # Over layers; the number of heads may differ from one to the next.
    encoder: Sequence[Float[np.ndarray, "_ src src"] | None]
    decoder: Sequence[Float[np.ndarray, "_ tgt tgt"] | None]
    cross: Sequence[Float[np.ndarray, "_ tgt src"] | None]

    def queries(self, part: str) -> Axis:
        """What the rows of "encoder", "decoder" or "cross" are."""
        return self.src if part == "encoder" else self.tgt

    def keys(self, part: str) -> Axis:
        """What the columns are."""
        return Axis(self.read) if part == "decoder" else self.src


@dataclass(frozen=True)
class Attribution(Axes):
    """By how much each source piece raised or lowered the log-probability of each target piece (natural logarithms).

    Measured against a source of the same length without any pieces in it. A row sums to `log_probs - baseline`; by how
    much it misses that is `gap`. Source marks have no share; in `words` sums over the pieces of source and target word.
    """

    text: str
    translation: str
    src: Axis
    tgt: Axis
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
    """One position: what the model would have written there; of an encoder, what it says stands there, or what the
    whole is.
    """

    piece: str  # what was written, or stands there; "" where nobody says
    candidates: Sequence[Candidate]  # likeliest first
    layers: Sequence[Sequence[Candidate]]  # the same after each layer (logit lens), the last layer last
    residual: Sequence[float]  # Euclidean norm of the residual stream: embedding, then after each layer;
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
    """How a translation came about, or what a network says of its input, position by position."""

    positions: Sequence[Position]
    beam: Sequence[BeamNode]  # parents before children; empty where no search ran

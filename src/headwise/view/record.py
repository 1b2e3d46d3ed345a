"""Records of the inspector for one input: plain data, for analysis, drawing and saving.

A record depends on the attentions of the network (encoder, decoder, cross) and on its axes (tokens of a text, patches
of a picture, times of a sound). `attend.py`, `attribution.py` and `trace.py` make records; the views (page, picture,
terminal) use nothing else. Arrays are numpy, in float32; layers, heads and tokens are counted from 0.
"""

import html
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, UInt8

from headwise.errors import unknown
from headwise.evaluate.pages.document import english_texts
from headwise.view.labels import token_label
from headwise.view.tables import RecordTable, Tabular

NEXT = "<next>"  # the unknown token behind a text
ATTENTIONS = {  # what the parts of a record are called
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}
# The two decoder steps of a target token: the one that predicts it, and the next one, which reads it as its input.
# Heads differ in which of the two attends to the source of the token (Chen et al. 2020, arXiv:2004.14837).
ROWS = ("predicts", "reads")
SHOWN = 12  # rows and columns of values in a table
TEMPERATURES = (0.5, 2.0)  # other than 1, of which a walk has the probabilities


@dataclass(frozen=True)
class Word:
    """A word of a text and the tokens `start:stop` that spell it."""

    text: str
    start: int
    stop: int
    declared: bool = False  # a token that was declared, such as `<2de>`, and no text


@dataclass(frozen=True)
class Patches:
    """A picture, divided into squares row by row."""

    pixels: UInt8[np.ndarray, "height width 3"]  # the input of the network: resized and cropped, colours from 0 to 255
    rows: int
    columns: int
    n_before: int  # positions before the first patch: a class token, and DeiT's second one


@dataclass(frozen=True)
class Times:
    """A sound, divided into stretches of equal length."""

    step: float  # seconds of a stretch
    loudness: Float32[np.ndarray, " stretches"]  # 0 to 1; without the silence behind the sound


@dataclass(frozen=True)
class Axis:
    """The positions along one side of attention weights: tokens of a text, patches or times."""

    labels: Sequence[str] = ()  # tokens, special ones included; names of patches; seconds
    words: Sequence[Word] = ()  # of the tokens
    of: Patches | Times | None = None  # None = a text

    @property
    def drawn(self) -> list[str]:
        """The labels as views write them: those that are not tokens look like tokens that begin a word."""
        return list(self.labels) if self.of is None else [as_word_start(label) for label in self.labels]


def as_word_start(label: str) -> str:
    """A label with a leading blank sign, except special tokens such as `<class>`."""
    return label if label.startswith("<") else f"\u2581{label}"


class Axes:
    """Short names for both sides of a record of texts."""

    src: Axis
    tgt: Axis

    @property
    def src_pieces(self) -> Sequence[str]:
        """The input of the encoder, end token included."""
        return self.src.labels

    @property
    def tgt_pieces(self) -> Sequence[str]:
        """The output of the decoder, end token included."""
        return self.tgt.labels

    @property
    def src_words(self) -> Sequence[Word]:
        return self.src.words

    @property
    def tgt_words(self) -> Sequence[Word]:
        return self.tgt.words


@dataclass(frozen=True)
class AttentionRecord(Axes):
    """Attention weights of one input for the stacks of its network; each row (query) sums to one.

    Layers that were not requested are None. Attentions and axes that the network lacks are empty: an encoder alone has
    no `tgt`, a decoder alone no `src`. Heads are all heads of the layer, in the order of the model, or those requested.

    The decoder reads `read`: row t of `decoder` and `cross` belongs to its input at t and predicts label t of `tgt`.
    Column t of `decoder` is the input at t: the start token, then the output without its last token. For a decoder
    alone it is the text, whose last row predicts the unknown `NEXT`.
    """

    text: str  # the source; the file name of a picture or a sound
    translation: str  # "" if the network has no decoder
    src: Axis  # of the encoder
    tgt: Axis  # output of the decoder
    read: Sequence[str]  # input of the decoder
    # Over layers; the number of heads may differ from one to the next.
    encoder: Sequence[Float[np.ndarray, "_ src src"] | None]
    decoder: Sequence[Float[np.ndarray, "_ tgt tgt"] | None]
    cross: Sequence[Float[np.ndarray, "_ tgt src"] | None]

    def queries(self, part: str) -> Axis:
        """The rows of "encoder", "decoder" or "cross"."""
        return self.src if part == "encoder" else self.tgt

    def keys(self, part: str) -> Axis:
        """The columns of one of these."""
        return Axis(self.read) if part == "decoder" else self.src


@dataclass(frozen=True)
class Attribution(Axes, Tabular):
    """How much each source token raised or lowered the log-probability of each target token (natural logarithms).

    Relative to an empty source of the same length. A row sums to `log_probs - baseline`, up to the error `gap`. Special
    tokens of the source have no share; `words` are sums over the tokens of source and target word.
    """

    text: str
    translation: str
    src: Axis
    tgt: Axis
    pieces: Float[np.ndarray, "tgt src"]
    words: Float[np.ndarray, "tgt_words src_words"]
    log_probs: Float[np.ndarray, " tgt"]  # of each target token, given the source and the tokens before it
    baseline: Float[np.ndarray, " tgt"]  # the same, given no source

    @property
    def gap(self) -> float:
        """The largest error of a row; more `steps` make it smaller."""
        return float(np.abs(self.pieces.sum(1) - (self.log_probs - self.baseline)).max())

    def tables(self) -> Iterator[RecordTable]:
        """The contribution of each source word to each target word."""
        most = float(np.abs(self.words).max(initial=0.0)) or 1.0
        yield RecordTable(
            "Contribution of source words (columns) to the log-probability of target words (rows), in nats",
            ["word", *(word.text for word in self.src_words)],
            [[word.text, *map(_signed, row)] for word, row in zip(self.tgt_words, self.words.tolist(), strict=True)],
            (self.words / most).tolist(),
        )


@dataclass(frozen=True)
class Candidate:
    """A possible token and its log-probability (natural)."""

    piece: str
    log_prob: float


@dataclass(frozen=True)
class Prediction:
    """The most probable tokens at a position; at temperature T one has the probability exp(log_prob / T - total)."""

    candidates: Sequence[Candidate]  # most probable first
    totals: Sequence[float]  # for each of TEMPERATURES: the logarithm of the sum of exp(log_prob / T) over all tokens


@dataclass(frozen=True)
class Position:
    """The predictions at one position: of the next token; for an encoder, of its token or of the label of the whole."""

    piece: str  # the token itself; "" where unknown
    candidates: Sequence[Candidate]  # most probable first
    layers: Sequence[Sequence[Candidate]]  # the same after each layer (logit lens), the last layer last
    residual: Sequence[float]  # Euclidean norm of the residual stream: embedding, then after each layer;
    # empty for architectures other than the Transformer, whose `layers` hold the last one alone


@dataclass(frozen=True)
class BeamNode:
    """A hypothesis of the beam: its parent with one more token."""

    parent: int  # index into `Trace.beam`; -1 for the first tokens
    step: int  # tokens before this one
    piece: str
    log_prob: float  # of the whole hypothesis so far
    score: float  # what the beam ranks by: log_prob over the length penalty
    status: str  # "kept", "pruned", "finished" or "chosen" (on the path of the translation)


@dataclass(frozen=True)
class Trace(Tabular):
    """The predictions of a network position by position, and the beam of a translation."""

    positions: Sequence[Position]
    beam: Sequence[BeamNode]  # parents before children; empty without a search

    def tables(self) -> Iterator[RecordTable]:
        """The most probable tokens, the best one after each layer, and the finished hypotheses of the beam."""
        rows = [(f"{n} {_label(position.piece)}".strip(), position) for n, position in enumerate(self.positions)]
        if rows:
            n = min(3, max(len(position.candidates) for _, position in rows))
            head = ["position and token", *(f"{i + 1}. candidate" for i in range(n))]
            yield RecordTable("Most probable tokens", head, [[name, *_likely(one.candidates, n)] for name, one in rows])
        n_layers = max((len(position.layers) for _, position in rows), default=0)
        if n_layers > 1:
            layers = [[name, *(_likely(layer, 1)[0] for layer in one.layers)] for name, one in rows]
            head = ["position and token", *(f"layer {i}" for i in range(n_layers))]
            yield RecordTable("Most probable token after each layer (logit lens)", head, layers)
        if self.beam:
            yield self._beam_table()

    def _beam_table(self) -> RecordTable:
        parents = {node.parent for node in self.beam}
        ended = [i for i, one in enumerate(self.beam) if i not in parents and one.status in ("finished", "chosen")]
        ended.sort(key=lambda i: -self.beam[i].score)
        pruned = sum(node.status == "pruned" for node in self.beam)
        rows = [
            [
                self._hypothesis(i),
                *(f"{x:.3f}" for x in (self.beam[i].score, self.beam[i].log_prob)),
                self.beam[i].status,
            ]
            for i in ended
        ]
        caption = f"Finished hypotheses of the beam (pruned: {pruned})"
        return RecordTable(caption, ["hypothesis", "score", "log-probability", "status"], rows)

    def _hypothesis(self, node: int) -> str:
        """The tokens on the path to a node."""
        pieces: list[str] = []
        while node >= 0:
            pieces.append(_label(self.beam[node].piece))
            node = self.beam[node].parent
        return " ".join(pieces[::-1])


@dataclass(frozen=True)
class WalkStep(Tabular):
    """One step of the computation of figure 1 and its result.

    `operation` states how a cell of `values` follows from the `operands`, with `settings`, `weight` and `bias` as its
    parameters: "embedding", "position", "add", "norm", "projection", "rotate", "scores", "softmax", "weighted-sum",
    "concat", "activation", "probabilities", "same" (as the operand), or "given" (computed elsewhere).
    """

    id: str  # unique in a walk, such as "self_attn.scores"
    place: str  # the box of figure 1: "embedding", "positions", "self_attn", "cross_attn", "ffn", "output"
    text: str  # the key of name and sentence in the catalogues of the pages: "step-..." and "sentence-..."
    formula: str
    operation: str
    operands: Sequence[str]  # ids of the steps that it is computed from
    rows: Sequence[str]  # tokens
    columns: Sequence[str]  # tokens; empty if columns are dimensions
    values: Float[np.ndarray, "row column"]  # -inf where the mask hides a score
    layer: int | None = None  # None: the step does not belong to one layer
    head: int | None = None  # None: the step does not belong to one head
    settings: Mapping[str, Any] = field(default_factory=dict)
    weight: Float[np.ndarray, "..."] | None = None  # (inputs, outputs) of a projection, or one number a column
    bias: Float[np.ndarray, "..."] | None = None  # one number a column; of probabilities one a row
    predictions: Sequence[Prediction] = ()  # of probabilities: one a row, over the whole vocabulary

    @property
    def name(self) -> str:
        """In English, as of "Softmax"."""
        return english_texts()[f"step-{self.text}"]

    @property
    def sentence(self) -> str:
        """What the step is for, in English."""
        return english_texts()[f"sentence-{self.text}"]

    def tables(self) -> Iterator[RecordTable]:
        """The values, or their first rows and columns."""
        columns = [_label(one) for one in self.columns[:SHOWN]] or list(map(str, range(self.values.shape[1])))[:SHOWN]
        cut = ["…"] if self.values.shape[1] > SHOWN else []
        rows = [
            [_label(name), *map(_number, row), *cut]
            for name, row in zip(self.rows[:SHOWN], self.values[:SHOWN, :SHOWN].tolist(), strict=True)
        ]
        more = f", the first {SHOWN} of {len(self.rows)} rows" if len(self.rows) > SHOWN else ""
        yield RecordTable(
            f"{self.name} ({self.id}): {self.formula}, {_size(self.values)}{more}", ["token", *columns, *cut], rows
        )


def text_of(step: str) -> str:
    """The key of the texts of a step with this id: that of the step, or of what follows the name of its sublayer.

    >>> text_of("cross_attn.queries"), text_of("self_attn.queries")
    ('cross_attn-queries', 'queries')
    """
    key = step.replace(".", "-")
    return key if f"step-{key}" in english_texts() else step.partition(".")[2]


class Walk(Tabular, list[WalkStep]):
    """The steps of a walk, first to last: a list, which a notebook shows as tables."""

    def step(self, name: str) -> WalkStep:
        """The step with this `id`, such as "self_attn.scores"; `UserError` if there is none."""
        for one in self:
            if one.id == name:
                return one
        raise unknown("step", name, [one.id for one in self])

    def tables(self) -> Iterator[RecordTable]:
        """The steps; `step` returns one with its values."""
        rows = [[one.id, one.name, one.formula, ", ".join(one.operands), _size(one.values)] for one in self]
        yield RecordTable("Walk", ["step", "name", "formula", "computed from", "size"], rows)

    def _repr_html_(self) -> str:
        steps = "".join(
            f"<details><summary>{html.escape(one.id)}</summary>{one._repr_html_()}</details>" for one in self
        )
        return super()._repr_html_() + steps


@dataclass(frozen=True)
class StackFigure:
    """The part of figure 1 for a stack of layers."""

    heads: Sequence[int]  # of each layer, as many as all its attentions have: a walk follows one through each
    blocks: Sequence[str]  # sublayers in their order: "self_attn", "cross_attn", "ffn"
    norm: str  # "post" (the paper), "pre", "sandwich" or "parallel"
    positions: str  # "added" to the embeddings (the paper), "rotary", "relative" or "none"
    causal: bool
    output: str  # "memory" for a decoder, "probabilities", or "states"


@dataclass(frozen=True)
class WalkRecord:
    """The walks through every layer and head for one input, and the figure to find one's way."""

    figure: Mapping[str, StackFigure]  # "encoder" and "decoder", or one of them
    steps: Callable[[str, int, int], list[WalkStep]]  # of a stack, layer and head


# --- Cells of tables ---


def _label(piece: str) -> str:
    return token_label(piece) if piece else ""


def _likely(candidates: Sequence[Candidate], n: int) -> list[str]:
    """The first `n` candidates with their probabilities; "" where there are fewer."""
    texts = [f"{_label(one.piece)} {100 * math.exp(one.log_prob):.0f} %" for one in candidates[:n]]
    return texts + [""] * (n - len(texts))


def _signed(value: float) -> str:
    return f"{value:+.2f}"


def _number(value: float) -> str:
    return f"{value:.3g}"


def _size(values: Float[np.ndarray, "..."]) -> str:
    return " by ".join(map(str, values.shape))

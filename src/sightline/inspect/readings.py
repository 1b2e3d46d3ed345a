"""What attention weights are read with: averages, words instead of pieces, rollout, entropy, distance.

Plain functions on the arrays of a record, in numpy. None of them proves that a model *used* what it looked at; for that
compare with `attribution`, which asks the gradient.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from sightline.errors import UserError, unknown
from sightline.inspect.record import ROWS, AttentionRecord, Word

LayerWeights = Float[np.ndarray, "heads queries keys"]


def head_average(layer: Float[np.ndarray, "heads queries keys"]) -> Float[np.ndarray, "queries keys"]:
    """The mean of a layer's heads; rows still sum to one."""
    return layer.mean(0)


def layer_average(layers: Sequence[LayerWeights | None]) -> Float[np.ndarray, "queries keys"]:
    """The mean of the recorded layers, each the mean of its heads; layers that were not recorded do not count.

    Raises:
        UserError: no layer was recorded.
    """
    recorded = [head_average(layer) for layer in layers if layer is not None]
    if not recorded:
        raise UserError("no layer of this attention was recorded, or the model has none")
    return np.mean(recorded, axis=0)


def between_words(
    weights: Float[np.ndarray, "*heads queries keys"],
    query_words: Sequence[Word],
    key_words: Sequence[Word],
    row: str = "predicts",
) -> Float[np.ndarray, "*heads query_words key_words"]:
    """From words to words: the sum over the pieces looked at, the mean over the pieces that look.

    So does Clark et al. 2019 (arXiv:1906.04341, section 4.1). What a row lacks to one went to marks.

    Args:
        weights: one or several heads of an `AttentionRecord`.
        query_words: words of the rows.
        key_words: words of the columns.
        row: which step of the decoder speaks for a target piece: the one that "predicts" it, or the one that "reads" it
            as its input, a row later. A piece at the end of an unfinished output was never read: its row is zero.

    Raises:
        UserError: `row` is neither.
    """
    if row not in ROWS:
        raise unknown("row", row, ROWS)
    keys = [weights[..., word.start : word.stop].sum(-1) for word in key_words]
    summed = np.stack(keys, -1) if keys else weights[..., :0]
    if row == "reads":
        summed = np.concatenate([summed[..., 1:, :], np.zeros_like(summed[..., :1, :])], -2)
    rows = [summed[..., word.start : word.stop, :].mean(-2) for word in query_words]
    return np.stack(rows, -2) if rows else summed[..., :0, :]


def clearest_head(record: AttentionRecord) -> tuple[int, int, str] | None:
    """Layer, head and row (`ROWS`) of the cross-attention that links this pair most clearly; None where there is none.

    Every piece of a source word counts once, with the greatest weight that a piece of the translation gives it: a
    head that looks at all of them evenly, or always at the same one, has 1 in all, one that looks at each in its turn
    as many as there are. Marks count nothing. Pieces and not words, for not every language has blanks.
    """
    looking, looked_at = _pieces_of(record.tgt_words), _pieces_of(record.src_words)
    found: list[tuple[float, int, int]] = []
    rows = {}
    for layer, heads in enumerate(record.cross if looking and looked_at else ()):
        for head, weights in enumerate(heads if heads is not None else ()):
            row = rows[layer, head] = alignment_row(record, weights)
            shown = [place + ROWS.index(row) for place in looking if place + ROWS.index(row) < len(weights)]
            found.append((float(weights[shown][:, looked_at].max(0, initial=0.0).sum()), -layer, -head))
    if not found:
        return None
    _, layer, head = max(found)
    return -layer, -head, rows[-layer, -head]


def alignment_row(record: AttentionRecord, weights: Float[np.ndarray, "tgt src"]) -> str:
    """Which row of a piece looks at its source under these weights of the cross-attention: one of `ROWS`.

    The row in which they agree better with the mean of the last layer but one, from which `align` reads links where
    nothing better is known (`alignment.usual_head`); of the last recorded layer where that one was not recorded. Of
    one sentence no head says by itself which row is meant: one that looks at the source of the piece just read is as
    sharp, and a step late.
    """
    last_but_one = record.cross[max(0, len(record.cross) - 2)]
    layer = last_but_one if last_but_one is not None else [one for one in record.cross if one is not None][-1]
    columns = _pieces_of(record.src_words)
    usual = head_average(layer)[:-1, columns]
    predicts, reads = float((weights[:-1, columns] * usual).sum()), float((weights[1:, columns] * usual).sum())
    return ROWS[reads > predicts]


def _pieces_of(words: Sequence[Word]) -> list[int]:
    return [piece for word in words for piece in range(word.start, word.stop)]


def entropy(layer: Float[np.ndarray, "heads queries keys"]) -> Float[np.ndarray, " heads"]:
    """How spread out each head looks: the entropy of its rows in nats, on average.

    0 looks at one piece alone; ln n looks evenly at n pieces, so e^entropy is a number of pieces.
    """
    logs = np.log(np.where(layer > 0, layer, 1.0))
    return -(layer * logs).sum(-1).mean(-1)


def distance(layer: Float[np.ndarray, "heads length length"]) -> Float[np.ndarray, " heads"]:
    """How far each head of a self-attention looks, in pieces to either side, on average (arXiv:1906.04284)."""
    place = np.arange(layer.shape[-1])
    return (layer * abs(place - place[:, None])).sum(-1).mean(-1)


def distance_from_diagonal(layer: Float[np.ndarray, "heads tgt src"]) -> Float[np.ndarray, " heads"]:
    """How far each head of a cross-attention looks from where an even pace would look; 0 ... 1 of the source's length.

    The pace: target piece i of n reads at (i + 1/2) / n of the source, and source piece j of m stands at (j + 1/2) / m.
    """
    _, n, m = layer.shape
    reading, standing = (np.arange(n) + 0.5) / n, (np.arange(m) + 0.5) / m
    return (layer * abs(standing - reading[:, None])).sum(-1).mean(-1)


# --- Attention rollout


@dataclass(frozen=True)
class Rollout:
    """How much of each input is in each output, if attention were all that mixes them; rows sum to one, see `rollout`.

    A row of the decoder is spread over both sides: those of `target` and `source` sum to one together.
    """

    encoder: Float[np.ndarray, "src src"]  # states of the encoder from source pieces
    source: Float[np.ndarray, "tgt src"]  # states of the decoder from source pieces
    target: Float[np.ndarray, "tgt tgt"]  # states of the decoder from its inputs: the start mark, target pieces


def rollout(record: AttentionRecord) -> Rollout:
    """Attention rollout (Abnar and Zuidema 2020, arXiv:2005.00928) through encoder and decoder.

    Every attention hands on half of what was there (the residual connection) and half of what it looks at. In the
    encoder that is the paper's own formula, A = (W + I) / 2, multiplied over the layers. The paper stops there; through
    the decoder the same rule is followed to both inputs, as Ferrando et al. 2022 (arXiv:2205.11631) follow theirs.

    Raises:
        UserError: a layer was not recorded, or the model has no self-attention.
    """
    encoder = stack_rollout(record.encoder)
    target, source = np.eye(len(record.tgt_pieces)), np.zeros((len(record.tgt_pieces), len(encoder)))
    for self_layer, cross_layer in zip(_every(record.decoder), _every(record.cross), strict=True):
        mixed = _with_residual(self_layer)
        target, source = mixed @ target, mixed @ source
        target, source = target / 2, (source + _mean(cross_layer) @ encoder) / 2
    return Rollout(*(matrix.astype(np.float32) for matrix in (encoder, source, target)))


def stack_rollout(layers: Sequence[Float[np.ndarray, "_ length length"] | None]) -> Float[np.ndarray, "length length"]:
    """Rollout through one stack of self-attentions: row i says how much of each input is in output i."""
    mixed = [_with_residual(layer) for layer in _every(layers)]
    product = mixed[0]
    for layer in mixed[1:]:
        product = layer @ product
    return product


def _every(layers: Sequence[LayerWeights | None]) -> list[LayerWeights]:
    recorded = [layer for layer in layers if layer is not None]
    if not recorded or len(recorded) < len(layers):
        raise UserError("rollout needs every layer of a Transformer: record them all (attend without layers=)")
    return recorded


def _mean(layer: LayerWeights) -> Float[np.ndarray, "queries keys"]:
    """In float64, for products of many layers."""
    return layer.astype(np.float64).mean(0)


def _with_residual(layer: LayerWeights) -> Float[np.ndarray, "length length"]:
    return (_mean(layer) + np.eye(layer.shape[-1])) / 2

"""Summaries of attention weights: averages, words instead of tokens, rollout, entropy, distance.

Plain functions on the arrays of a record, in numpy. None of them proves that a model *used* what it attended to;
compare with `attribution`, which uses gradients.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from headwise.errors import UserError, unknown
from headwise.view.alignment import usual_layer
from headwise.view.record import ROWS, AttentionRecord, Word

LayerWeights = Float[np.ndarray, "heads queries keys"]


def head_average(layer: Float[np.ndarray, "heads queries keys"]) -> Float[np.ndarray, "queries keys"]:
    """The mean of a layer's heads; rows still sum to one."""
    return layer.mean(0)


def layer_average(layers: Sequence[LayerWeights | None]) -> Float[np.ndarray, "queries keys"]:
    """The mean of the recorded layers, each the mean of its heads.

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
    """Attention between words: the sum over the tokens of the key, the mean over the tokens of the query.

    As in Clark et al. 2019 (arXiv:1906.04341, section 4.1). The rest of a row went to special tokens.

    Args:
        weights: one or several heads of an `AttentionRecord`.
        query_words: words of the rows.
        key_words: words of the columns.
        row: which step of the decoder represents a target token: the one that "predicts" it, or the one that "reads" it
            as its input, a row later. The last token of an unfinished output was never read: its row is zero.

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
    """Layer, head and row (`ROWS`) of the cross-attention that aligns this pair most clearly; None without one.

    Sums over source tokens the greatest weight from any target token. A head that attends evenly, or always to the same
    token, has 1 in total; one that attends to each in turn has their number. Special and declared tokens (such as
    `<2de>`) do not count. Tokens are used, not words, because not every language has blanks.
    """
    looking, looked_at = _tokens_of(record.tgt_words), _tokens_of(record.src_words)
    found: list[tuple[float, int, int]] = []
    rows = {}
    for layer, heads in enumerate(record.cross if looking and looked_at else ()):
        for head, weights in enumerate(heads if heads is not None else ()):
            row = rows[layer, head] = alignment_row(record, weights)
            shown = [i + ROWS.index(row) for i in looking if i + ROWS.index(row) < len(weights)]
            found.append((float(weights[shown][:, looked_at].max(0, initial=0.0).sum()), -layer, -head))
    if not found:
        return None
    _, layer, head = max(found)
    return -layer, -head, rows[-layer, -head]


def alignment_row(record: AttentionRecord, weights: Float[np.ndarray, "tgt src"]) -> str:
    """Which row of a token attends to its source in this cross-attention: one of `ROWS`.

    The one that agrees better with the mean of `alignment.usual_layer`, or of the last recorded layer. A single head
    cannot tell on one sentence: attention to the source of the token just read is as sharp, one step later.
    """
    usual_one = record.cross[usual_layer(len(record.cross))]
    layer = usual_one if usual_one is not None else [one for one in record.cross if one is not None][-1]
    columns = _tokens_of(record.src_words)
    usual = head_average(layer)[:-1, columns]
    predicts, reads = float((weights[:-1, columns] * usual).sum()), float((weights[1:, columns] * usual).sum())
    return ROWS[reads > predicts]


def _tokens_of(words: Sequence[Word]) -> list[int]:
    return [i for word in words if not word.declared for i in range(word.start, word.stop)]


def entropy(layer: Float[np.ndarray, "heads queries keys"]) -> Float[np.ndarray, " heads"]:
    """The mean entropy of each head's rows, in nats.

    0 is attention to one token alone; ln n is even attention to n tokens, so e^entropy is a number of tokens.
    """
    logs = np.log(np.where(layer > 0, layer, 1.0))
    return -(layer * logs).sum(-1).mean(-1)


def distance(layer: Float[np.ndarray, "heads length length"]) -> Float[np.ndarray, " heads"]:
    """The mean distance of attention in tokens, for each head of a self-attention (arXiv:1906.04284)."""
    position = np.arange(layer.shape[-1])
    return (layer * abs(position - position[:, None])).sum(-1).mean(-1)


def distance_from_diagonal(layer: Float[np.ndarray, "heads tgt src"]) -> Float[np.ndarray, " heads"]:
    """The mean distance of each head of a cross-attention from the diagonal, as a share of the source length.

    Target token i of n is at (i + 1/2) / n, source token j of m at (j + 1/2) / m.
    """
    _, n, m = layer.shape
    reading, standing = (np.arange(n) + 0.5) / n, (np.arange(m) + 0.5) / m
    return (layer * abs(standing - reading[:, None])).sum(-1).mean(-1)


# --- Attention rollout


@dataclass(frozen=True)
class Rollout:
    """The share of each input in each output if only attention mixed them; see `rollout`.

    Rows sum to one; in the decoder those of `target` and `source` together.
    """

    encoder: Float[np.ndarray, "src src"]  # states of the encoder from source tokens
    source: Float[np.ndarray, "tgt src"]  # states of the decoder from source tokens
    target: Float[np.ndarray, "tgt tgt"]  # states of the decoder from its inputs: start token, target tokens


def rollout(record: AttentionRecord) -> Rollout:
    """Attention rollout (Abnar and Zuidema 2020, arXiv:2005.00928) through encoder and decoder.

    Every attention passes on half of its input (the residual connection) and half of what it attends to. In the encoder
    that is the formula of the paper, A = (W + I) / 2, multiplied over the layers. In the decoder the same rule is
    applied to both inputs, as in Ferrando et al. 2022 (arXiv:2205.11631).

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
    """Rollout through one stack of self-attentions: row i has the share of each input in output i."""
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

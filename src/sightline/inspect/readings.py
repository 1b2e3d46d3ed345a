"""What attention weights are read with: averages, words instead of pieces, rollout, entropy, distance.

Plain functions on the arrays of a record, in numpy. None of them proves that a model *used* what it looked at; for that
compare with `attribution`, which asks the gradient.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from sightline.errors import UserError
from sightline.inspect.record import AttentionRecord, Word

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
    weights: Float[np.ndarray, "*heads queries keys"], query_words: Sequence[Word], key_words: Sequence[Word]
) -> Float[np.ndarray, "*heads query_words key_words"]:
    """From words to words: the sum over the pieces looked at, the mean over the pieces that look.

    So does Clark et al. 2019 (arXiv:1906.04341, section 4.1). What a row lacks to one went to marks.
    """
    keys = [weights[..., word.start : word.stop].sum(-1) for word in key_words]
    summed = np.stack(keys, -1) if keys else weights[..., :0]
    rows = [summed[..., word.start : word.stop, :].mean(-2) for word in query_words]
    return np.stack(rows, -2) if rows else summed[..., :0, :]


def clearest_head(record: AttentionRecord) -> tuple[int, int] | None:
    """Layer and head of the cross-attention that links this pair most clearly; None where there is none.

    Every piece of a source word counts once, with the greatest weight that a piece of the translation gives it: a
    head that looks at all of them evenly, or always at the same one, has 1 in all, one that looks at each in its turn
    as many as there are. Marks count nothing. Pieces and not words, for not every language has blanks.
    """
    reading, read = _pieces_of(record.tgt_words), _pieces_of(record.src_words)
    found = [
        (clearness, -layer, -head)
        for layer, heads in enumerate(record.cross)
        if heads is not None and reading and read
        for head, clearness in enumerate(heads[:, reading][:, :, read].max(1).sum(-1).tolist())
    ]
    return (-max(found)[1], -max(found)[2]) if found else None


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

"""The work of the contenders: sizes of models, batches of token ids, and the operations of a batch.

The operations are those of the matrix products of the mathematics alone, a multiply-add counted as two; no padding,
no masked half of causal attention, no softmax, norm, dropout or optimiser. With d = d_model, f = d_ff, V tokens in the
vocabulary, a source of s and a target of t tokens (end tokens included), a forward pass needs, in multiply-adds,

    encoder layer   s (4 d^2 + 2 d f)  +  2 s^2 d
    decoder layer   t (6 d^2 + 2 d f)  +  2 s d^2  +  t (t + 1) d  +  2 s t d
    output          t d V

where 4 d^2 are the projections of q, k, v and the output, 6 d^2 those of self-attention and the query and output
side of cross-attention, 2 s d^2 its keys and values; the quadratic terms are scores and weighted sums. Backward needs
twice that.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headwise.config.model import ModelConfig, TransformerConfig
from headwise.core.batches import Batch, collate
from headwise.text.prepared.batch_planning import plan_batches

VOCABULARY = 8000
PAD, BOS, EOS, UNK = range(4)
DROPOUT, SMOOTHING = 0.1, 0.1


@dataclass(frozen=True)
class Size:
    """Shape of a model; as many decoder layers as encoder layers."""

    d_model: int
    n_layers: int
    d_ff: int
    n_heads: int
    vocab_size: int = VOCABULARY

    def config(self, norm_position: str = "post") -> ModelConfig:
        """The configuration of our model with this shape."""
        return TransformerConfig(
            vocab_size=self.vocab_size,
            pad_id=PAD,
            d_model=self.d_model,
            d_ff=self.d_ff,
            n_heads=self.n_heads,
            n_encoder_layers=self.n_layers,
            n_decoder_layers=self.n_layers,
            dropout=DROPOUT,
            norm_position=norm_position,
        )


SIZES = {
    "tiny": Size(d_model=128, n_layers=4, d_ff=256, n_heads=4),
    "d256": Size(d_model=256, n_layers=3, d_ff=1024, n_heads=4),
    "base": Size(d_model=512, n_layers=6, d_ff=2048, n_heads=8),
    "paper": Size(d_model=512, n_layers=6, d_ff=2048, n_heads=8, vocab_size=37_000),  # section 5.1
}

# Tokens a side with the end token, for the 29,000 training pairs of Multi30k, English and German, with 8,000 joint BPE
# tokens: means 15.3 and 15.8, logarithms nearly normal.
LOG_MEANS, LOG_DEVIATIONS, CORRELATION = (2.684, 2.706), (0.295, 0.330), 0.859
SHORTEST, LONGEST = 4, 54


def draw_lengths(pairs: int, seed: int = 1) -> NDArray[np.int64]:
    """(pairs, 2) lengths of sources and targets, end tokens included, sampled like those of Multi30k."""
    (a, b), r = LOG_DEVIATIONS, CORRELATION
    covariance = [[a * a, r * a * b], [r * a * b, b * b]]
    logs = np.random.default_rng(seed).multivariate_normal(LOG_MEANS, covariance, size=pairs)
    return np.clip(np.rint(np.exp(logs)), SHORTEST, LONGEST).astype(np.int64)


def draw_tokens(lengths: NDArray[np.int64], vocab_size: int = VOCABULARY, seed: int = 1) -> list[NDArray[np.int32]]:
    """For each length a row of uniformly sampled ids, without special tokens."""
    generator = np.random.default_rng(seed)
    return [generator.integers(UNK + 1, vocab_size, length, dtype=np.int32) for length in lengths]


def training_batches(count: int, vocab_size: int = VOCABULARY, tokens: int = 2048, seed: int = 1) -> list[Batch]:
    """The same `count` batches for every contender, planned as in our training.

    Rows x longest side is at most `tokens`, so a batch has up to that many cells a side, padding included.
    """
    pairs = 1000 + count * tokens // 8
    lengths = draw_lengths(pairs, seed)
    src, tgt = (draw_tokens(side - 1, vocab_size, seed + 1 + i) for i, side in enumerate(lengths.T))
    plan = plan_batches(*lengths.T, tokens_per_batch=tokens, seed=seed, epoch=0)[:count]
    return [collate([(src[i], tgt[i]) for i in rows.tolist()], PAD, BOS, EOS) for rows in plan]


def training_operations(size: Size, batch: Batch) -> float:
    """Operations of forward and backward over a batch, by the formula above."""
    s = batch.src_mask.sum(1).double()
    t = (batch.tgt_out != PAD).sum(1).double()
    d, f = size.d_model, size.d_ff
    encoder = s * (4 * d * d + 2 * d * f) + 2 * s * s * d
    decoder = t * (6 * d * d + 2 * d * f) + 2 * s * d * d + t * (t + 1) * d + 2 * s * t * d
    multiply_adds = size.n_layers * (encoder + decoder) + t * d * size.vocab_size
    return 3 * 2 * multiply_adds.sum().item()


def decoding_operations(size: Size, source_tokens: int, target_tokens: int) -> float:
    """Operations of a greedy translation of one sentence with a cache; the source has an end token.

    A beam of k takes k times the decoder's share, except for the keys and values of the source.
    """
    s, t, d, f = source_tokens, target_tokens, size.d_model, size.d_ff
    encoder = s * (4 * d * d + 2 * d * f) + 2 * s * s * d
    decoder = t * (6 * d * d + 2 * d * f) + 2 * s * d * d + t * (t + 1) * d + 2 * s * t * d
    return 2 * (size.n_layers * (encoder + decoder) + t * d * size.vocab_size)

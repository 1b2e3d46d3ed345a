"""Beside the fourth stage of the pipeline: pairs whose pieces are other ones in every epoch (arXiv:1910.13267).

How a pair is cut is a pure function of (seed, epoch, row). Lengths change with it, so the pairs of some planned batches
are arranged anew by the lengths they have now. Not here: how a text is cut (`tokenizer.py`) and the plan
(`batching.py`).
"""

import random
from collections.abc import Iterator

import numpy as np

from headwise.config.data import PairData
from headwise.data.arranging import Noise, Pairs, Rows, arrange
from headwise.data.batch import Batch, Tokens, collate
from headwise.data.tokenizer import Tokenizer


def window_batches(
    corpus: Pairs,
    tokenizer: Tokenizer,
    config: PairData,
    tokens_per_batch: int,
    seed: int,
    bucketed: bool,
    window: tuple[int, int],
    rows: Rows,
    noise: Noise,
) -> Iterator[Batch]:
    """The pairs of a `window`, epoch and first planned batch, segmented with BPE-dropout and then batched."""
    epoch, begin = window
    segmented = ((row, dropped_pair(corpus, tokenizer, config, row, seed, epoch)) for row in rows.tolist())
    pairs = [(noise(src, epoch, row), tgt) for row, (src, tgt) in segmented]
    src_lengths, tgt_lengths = (np.array([len(pair[side]) for pair in pairs]) + 1 for side in (0, 1))
    generator = np.random.default_rng([seed, epoch, begin])
    for part in arrange(src_lengths, tgt_lengths, tokens_per_batch, generator, bucketed, epoch == begin == 0):
        chosen = [pairs[i] for i in part.tolist()]
        yield collate(chosen, tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, rows[part])


def dropped_pair(
    corpus: Pairs, tokenizer: Tokenizer, config: PairData, row: int, seed: int, epoch: int
) -> tuple[Tokens, Tokens]:
    """The segmentation of a pair in an epoch."""
    generator = random.Random(f"{seed} {epoch} {row}")
    src_text, tgt_text = corpus.text(row)
    src = tokenizer.encode_with_dropout(src_text, config.bpe_dropout, generator)
    both = config.bpe_dropout_sides == "both"
    tgt = tokenizer.encode_with_dropout(tgt_text, config.bpe_dropout, generator) if both else corpus.tgt(row)
    fits = max(len(src), len(tgt)) < config.max_length
    return (src, tgt) if fits else (corpus.src(row), corpus.tgt(row))

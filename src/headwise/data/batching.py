"""Fourth stage of the pipeline: which pairs form a batch, and the endless stream of batches that training
reads.

Section 5.1 of the paper batches pairs of similar length, because padding costs. What it does not say is what that
costs in turn: the pairs of a batch are alike, so its gradient is noisier than that of as many pairs drawn at random.
Where padding costs nothing (`training/packed.py`) batches are therefore sampled at random; elsewhere they are bucketed
by length, but only within a window of some batches. The plan of an epoch is a pure function of (seed, epoch), so a
cursor (where a stream stands in the data) is a few numbers. Not here: tensors (`batch.py`).
"""

import random
from collections.abc import Iterator, Mapping
from itertools import count

import numpy as np

from headwise.config.data import PairData
from headwise.data.batch import Batch, Tokens, collate
from headwise.data.batch_planning import Noise, Pairs, Rows, plan_batches, plan_epoch, shuffle_into_batches
from headwise.data.pair_tokenizer import PairTokenizer
from headwise.data.stream import Cursor, EndlessStream
from headwise.data.tokenizer import Tokenizer

WINDOW = 32  # planned batches whose pairs are arranged anew under BPE-dropout; more pad less and wait longer


def unchanged_tokens(source: Tokens, epoch: int, row: int) -> Tokens:
    """No noise."""
    return source


def validation_batches(
    corpus: Pairs, tokenizer: PairTokenizer, tokens_per_batch: int, noise: Noise = unchanged_tokens
) -> Iterator[Batch]:
    """Every pair of a corpus once, always in the same batches with the same noise, never with BPE-dropout."""
    for rows in plan_batches(corpus.src_lengths, corpus.tgt_lengths, tokens_per_batch, seed=0, epoch=0):
        yield load_batch(corpus, tokenizer, rows, noise)


def load_batch(
    corpus: Pairs, tokenizer: PairTokenizer, rows: Rows, noise: Noise = unchanged_tokens, epoch: int = 0
) -> Batch:
    """The batch of some rows."""
    pairs = [(noise(corpus.src(row), epoch, row), corpus.tgt(row)) for row in rows.tolist()]
    marks = tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id
    return collate(pairs, *marks, index=rows, src_end_id=tokenizer.source.eos_id)


class BatchStream(EndlessStream[Batch]):
    """Batches of training pairs.

    With `config.bpe_dropout` (arXiv:1910.13267) every pair, or its source alone, is segmented anew in every epoch,
    as a pure function of (seed, epoch, row). Lengths change with it, so the pairs of `WINDOW` planned batches are
    arranged anew by the lengths they have now; a segmentation longer than `config.max_length` is replaced by
    the one without dropout. `noise` changes what is read of the sources; lengths are planned without it.
    """

    def __init__(
        self,
        corpus: Pairs,
        tokenizer: PairTokenizer,
        config: PairData,
        tokens_per_batch: int,
        seed: int,
        bucketed: bool = True,
        state: Mapping[str, int] | None = None,
        prefetch: int = 8,
        pin: bool = False,
        noise: Noise = unchanged_tokens,
    ) -> None:
        def batches(start: Cursor) -> Iterator[tuple[Cursor, Batch]]:
            return batches_from(corpus, tokenizer, config, tokens_per_batch, seed, bucketed, start, noise)

        super().__init__(batches, state, prefetch, pin)


def batches_from(
    corpus: Pairs,
    tokenizer: PairTokenizer,
    config: PairData,
    tokens_per_batch: int,
    seed: int,
    bucketed: bool,
    start: Cursor,
    noise: Noise,
) -> Iterator[tuple[Cursor, Batch]]:
    """Batches from a cursor on, each with the cursor after it; only epoch 0 starts largest first."""
    epoch, position, offset = start
    for now in count(epoch):
        end, pairs = 0, corpus.in_epoch(now)
        for plan in plan_epoch(pairs.src_lengths, pairs.tgt_lengths, tokens_per_batch, seed, now, bucketed):
            first, end = end, end + len(plan)
            if end <= position:
                continue
            if config.bpe_dropout == 0:
                for done in range(max(first, position), end):
                    yield (now, done + 1, 0), load_batch(pairs, tokenizer, plan[done - first], noise, now)
                continue
            assert isinstance(tokenizer, Tokenizer), "other vocabularies are never cut anew"
            for begin in range(max(first, position), end, WINDOW):
                behind = min(begin + WINDOW, end)
                rows = np.concatenate(plan[begin - first : behind - first])
                window = (now, begin)
                settings = config, tokens_per_batch, seed, bucketed
                parts = list(dropout_batches(pairs, tokenizer, *settings, window, rows, noise))
                for given, batch in enumerate(parts[offset:], start=offset + 1):
                    yield (now, begin, given) if given < len(parts) else (now, behind, 0), batch
                offset = 0
        position = 0


def dropout_batches(
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
    segmented = ((row, segment_with_dropout(corpus, tokenizer, config, row, seed, epoch)) for row in rows.tolist())
    pairs = [(noise(src, epoch, row), tgt) for row, (src, tgt) in segmented]
    src_lengths, tgt_lengths = (np.array([len(pair[side]) for pair in pairs]) + 1 for side in (0, 1))
    generator = np.random.default_rng([seed, epoch, begin])
    for part in shuffle_into_batches(
        src_lengths, tgt_lengths, tokens_per_batch, generator, bucketed, epoch == begin == 0
    ):
        chosen = [pairs[i] for i in part.tolist()]
        yield collate(chosen, tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, rows[part])


def segment_with_dropout(
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

"""Batches of sentence pairs: the training stream, with BPE-dropout and noise, and validation batches."""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count

import numpy as np

from headwise.config.data import PairData
from headwise.core.batches import Batch, collate
from headwise.pytorch.data.stream import ALL_BATCHES, BatchShare, Cursor, EndlessStream, Planned
from headwise.text.prepared.batch_planning import Noise, Pairs, Rows, plan_batches, plan_epoch, shuffle_into_batches
from headwise.text.tokens.pair_tokenizer import PairTokenizer, Tokens
from headwise.text.tokens.tokenizer import Tokenizer

WINDOW = 32  # planned batches that are batched again under BPE-dropout; more pad less and wait longer


def unchanged_tokens(source: Tokens, epoch: int, row: int) -> Tokens:
    """No noise."""
    return source


def validation_batches(
    corpus: Pairs, tokenizer: PairTokenizer, tokens_per_batch: int, noise: Noise = unchanged_tokens
) -> Iterator[Batch]:
    """Every pair of a corpus once, in the same batches with the same noise every time, without BPE-dropout."""
    for rows in plan_batches(corpus.src_lengths, corpus.tgt_lengths, tokens_per_batch, seed=0, epoch=0):
        yield load_batch(corpus, tokenizer, rows, noise)


def load_batch(
    corpus: Pairs, tokenizer: PairTokenizer, rows: Rows, noise: Noise = unchanged_tokens, epoch: int = 0
) -> Batch:
    """The batch of some rows."""
    pairs = [(noise(corpus.src(row), epoch, row), corpus.tgt(row)) for row in rows.tolist()]
    special_ids = tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id
    return collate(pairs, *special_ids, index=rows, src_end_id=tokenizer.source.eos_id)


@dataclass(frozen=True)
class PairBatches:
    """The training batches of all epochs.

    With `config.bpe_dropout` (arXiv:1910.13267) the source, or both sides, are segmented again in every epoch, as a
    pure function of (seed, epoch, row). This changes lengths, so the pairs of `WINDOW` planned batches are batched
    again. A segmentation longer than `config.max_length` is replaced by the one without dropout. `noise` changes the
    sources; batches are planned by the lengths without noise.
    """

    corpus: Pairs
    tokenizer: PairTokenizer
    config: PairData
    tokens_per_batch: int
    seed: int
    bucketed: bool = True
    noise: Noise = unchanged_tokens

    def stream(
        self, state: Mapping[str, int] | None = None, share: BatchShare = ALL_BATCHES, prefetch: int = 8
    ) -> EndlessStream[Batch]:
        """An endless stream of training batches, resumed from `state`."""
        return EndlessStream(self.walk, state, share, prefetch)

    def walk(self, start: Cursor) -> Iterator[Planned[Batch]]:
        """The planned batches from a cursor on."""
        for now in count(start.epoch):
            yield from self.one_epoch(start)
            start = Cursor(now + 1)

    def one_epoch(self, start: Cursor) -> Iterator[Planned[Batch]]:
        """The planned batches of an epoch from a cursor on; only epoch 0 starts with the largest batch."""
        now, position, offset, _ = start
        size, seed, bucketed = self.tokens_per_batch, self.seed, self.bucketed
        end, pairs = 0, self.corpus.in_epoch(now)
        for plan in plan_epoch(pairs.src_lengths, pairs.tgt_lengths, size, seed, now, bucketed):
            first, end = end, end + len(plan)
            if end <= position:
                continue
            if self.config.bpe_dropout == 0:
                for done in range(max(first, position), end):
                    load = partial(load_batch, pairs, self.tokenizer, plan[done - first], self.noise, now)
                    yield Cursor(now, done + 1), load
                continue
            for begin in range(max(first, position), end, WINDOW):
                stop = min(begin + WINDOW, end)
                rows = np.concatenate(plan[begin - first : stop - first])
                batches = list(self._dropout_batches(pairs, rows, now, begin))
                for done, build in enumerate(batches[offset:], start=offset + 1):
                    yield Cursor(now, begin, done) if done < len(batches) else Cursor(now, stop), build
                offset = 0

    def _dropout_batches(self, pairs: Pairs, rows: Rows, epoch: int, begin: int) -> Iterator[Callable[[], Batch]]:
        """Segment the pairs of a window that starts at planned batch `begin` with BPE-dropout, and batch them again."""
        tokenizer = self.tokenizer
        segmented = ((row, self._segment(pairs, row, epoch)) for row in rows.tolist())
        tokens = [(self.noise(src, epoch, row), tgt) for row, (src, tgt) in segmented]
        src_lengths, tgt_lengths = (np.array([len(pair[side]) for pair in tokens]) + 1 for side in (0, 1))
        generator = np.random.default_rng([self.seed, epoch, begin])
        first = epoch == begin == 0
        settings = self.tokens_per_batch, generator, self.bucketed, first
        for batch in shuffle_into_batches(src_lengths, tgt_lengths, *settings):
            chosen = [tokens[i] for i in batch.tolist()]
            yield partial(collate, chosen, tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, rows[batch])

    def _segment(self, pairs: Pairs, row: int, epoch: int) -> tuple[Tokens, Tokens]:
        """The token ids of a pair in an epoch, with BPE-dropout."""
        tokenizer, config = self.tokenizer, self.config
        assert isinstance(tokenizer, Tokenizer), "BPE-dropout needs a tokenizer trained here"
        generator = random.Random(f"{self.seed} {epoch} {row}")
        src_text, tgt_text = pairs.text(row)
        src = tokenizer.encode_with_dropout(src_text, config.bpe_dropout, generator)
        both = config.bpe_dropout_sides == "both"
        tgt = tokenizer.encode_with_dropout(tgt_text, config.bpe_dropout, generator) if both else pairs.tgt(row)
        fits = max(len(src), len(tgt)) < config.max_length
        return (src, tgt) if fits else (pairs.src(row), pairs.tgt(row))

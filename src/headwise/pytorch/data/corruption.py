"""Corrupted running text and its target: the pre-training objectives of T5 and BART.

T5's span corruption (Raffel et al. 2020, arXiv:1910.10683, section 3.1.4 and figure 2; `random_spans_noise_mask` and
`random_spans_helper` of the authors' code): spans of three tokens on average, 15 % of a block, are each replaced by a
sentinel. The target is the sentinels, each followed by the tokens it replaces. Blocks are as long as fits into an input
of `data.block_length` tokens, so there is no padding.

BART's noise (Lewis et al. 2020, arXiv:1910.13461, section 2.2): sentence permutation, then text infilling of 30 % of
the words (`noise.py`). The target is the block.

The noise is a function of (seed, epoch, start of the block), so a resumed run is identical. Deviation: BART's blocks
run over the ends of documents, which are separated by EOS.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headwise.core.batches import Batch, collate
from headwise.pytorch.data.blocks import NoisyBlocks
from headwise.text.prepared.batch_planning import Rows
from headwise.text.prepared.noise import infill_text

SHARE, MEAN_SPAN = 0.15, 3.0  # T5: share of the tokens of a block, tokens per span
STOP = re.compile(r"[.!?…][\"'”\u2019»)\]]*$")  # ends a sentence if a space or nothing follows
FULL_STOP = re.compile(r"[。\uff01\uff1f｡]$|<0x0A>$")  # ends a sentence always; <0x0A> is a line end

TokenIds = NDArray[np.int64]
Corruption = Callable[[TokenIds, np.random.Generator], tuple[TokenIds, TokenIds]]  # block -> source, target


# --- T5's spans


@dataclass(frozen=True)
class SpanCorruption:
    """Replaces spans of a block by sentinels."""

    sentinels: TokenIds  # ids, in order

    def __call__(self, tokens: TokenIds, generator: np.random.Generator) -> tuple[TokenIds, TokenIds]:
        """Source and target, without special tokens."""
        noise = noise_mask(len(tokens), generator)
        return replace_spans(tokens, noise, self.sentinels), replace_spans(tokens, ~noise, self.sentinels)


def noise_counts(length: int) -> tuple[int, int]:
    """The number of tokens to corrupt in a block of `length` tokens, and the number of spans.

    >>> noise_counts(568), noise_counts(2)
    ((85, 28), (1, 1))
    """
    tokens = min(max(round(length * SHARE), 1), length - 1)
    return tokens, max(round(tokens / MEAN_SPAN), 1)


def block_length_for(length: int) -> int:
    """The length of the longest block whose source has at most `length` tokens, with sentinels and EOS.

    >>> block_length_for(512)
    568
    """

    def source_length(n: int) -> int:
        tokens, spans = noise_counts(n)
        return n - tokens + spans + 1

    n = max(2, length - 1)
    while source_length(n + 1) <= length:
        n += 1
    return n


def noise_mask(length: int, generator: np.random.Generator) -> NDArray[np.bool_]:
    """True for corrupted tokens. A block starts with a kept span and ends with a corrupted one.

    A block of one token is kept.
    """
    longer = max(2, length)
    tokens, spans = noise_counts(longer)
    kept, taken = (split_randomly(n, spans, generator) for n in (longer - tokens, tokens))
    return np.repeat(np.arange(2 * spans) % 2 == 1, np.stack([kept, taken], axis=1).ravel())[:length]


def split_randomly(n: int, n_parts: int, generator: np.random.Generator) -> TokenIds:
    """Split n into `n_parts` non-empty parts, uniformly at random; returns their lengths."""
    cuts = np.sort(generator.permutation(n - 1)[: n_parts - 1]) + 1
    return np.diff(np.concatenate([[0], cuts, [n]]))


def replace_spans(tokens: TokenIds, taken: NDArray[np.bool_], sentinels: TokenIds) -> TokenIds:
    """Replace every span of `taken` tokens by the next sentinel.

    >>> replace_spans(np.array([5, 6, 7, 8, 9]), np.array([0, 1, 1, 0, 1], bool), np.array([99, 98]))
    array([ 5, 99,  8, 98])
    """
    first = taken.copy()
    first[1:] &= ~taken[:-1]
    numbers = np.cumsum(first) - 1
    return np.where(first, sentinels[numbers], tokens)[~taken | first]


# --- BART's noise


@dataclass(frozen=True)
class Denoising:
    """Permutes the sentences of a block and masks spans of words. The arrays are indexed by token id."""

    mask_id: int
    word_starts: NDArray[np.bool_]  # the token starts a word
    stops: NDArray[np.bool_]  # the token ends a sentence if a word starts after it
    full_stops: NDArray[np.bool_]  # the token always ends a sentence

    def __call__(self, tokens: TokenIds, generator: np.random.Generator) -> tuple[TokenIds, TokenIds]:
        """Source and target, without special tokens; the target is `tokens`."""
        sentences = self.sentences(tokens)
        order = generator.permutation(len(sentences))
        permuted = np.concatenate([sentences[i] for i in order])
        return np.array(infill_text(permuted.tolist(), self.word_starts, self.mask_id, generator), np.int64), tokens

    def sentences(self, tokens: TokenIds) -> list[TokenIds]:
        """Split the tokens after every sentence."""
        ends = self.stops[tokens[:-1]] & self.word_starts[tokens[1:]] | self.full_stops[tokens[:-1]]
        return np.split(tokens, np.flatnonzero(ends) + 1)


def denoising_for(pieces: Iterable[str], mask_id: int, end_id: int) -> Denoising:
    """The noise for a vocabulary, given its readable pieces in the order of their ids: spaces as `▁`.

    >>> noise = denoising_for(["<mask>", "</s>", "▁dog", "s", "."], mask_id=0, end_id=1)
    >>> [part.tolist() for part in noise.sentences(np.array([2, 4, 2, 3, 4, 3, 1, 3]))]
    [[2, 4], [2, 3, 4, 3, 1], [3]]
    """
    listed = list(pieces)
    starts, stops, full = (
        np.array([bool(match(piece)) for piece in listed])
        for match in (re.compile("▁").match, STOP.search, FULL_STOP.search)
    )
    starts[end_id] = full[end_id] = True
    return Denoising(mask_id, starts, stops, full)


# --- Batches


@dataclass(frozen=True)
class BlockSpecials:
    """Special tokens around the source and target of a block."""

    prefix: Sequence[int]  # before the source
    suffix: Sequence[int]  # after the source, at least one
    target_prefix: Sequence[int]
    start_id: int  # first decoder input
    end_id: int  # after the target
    pad_id: int


@dataclass(frozen=True)
class CorruptedBlocks(NoisyBlocks[Batch]):
    """Running text in blocks that are corrupted."""

    tokens: NDArray[np.int32]
    length: int  # tokens of the text in a block
    corrupt: Corruption
    specials: BlockSpecials

    @property
    def text_length(self) -> int:
        return self.length

    def load(self, starts: Rows, length: int, seed: int, epoch: int) -> Batch:
        pairs = [
            self._pair(int(start), length, np.random.default_rng([seed, epoch, int(start) + 1])) for start in starts
        ]
        ids = self.specials
        return collate(pairs, ids.pad_id, ids.start_id, ids.end_id, index=starts, src_end_id=ids.suffix[-1])

    def _pair(self, start: int, length: int, generator: np.random.Generator) -> tuple[list[int], list[int]]:
        source, target = self.corrupt(self.tokens[start : start + length].astype(np.int64), generator)
        ids = self.specials
        return [*ids.prefix, *source.tolist(), *ids.suffix[:-1]], [*ids.target_prefix, *target.tolist()]

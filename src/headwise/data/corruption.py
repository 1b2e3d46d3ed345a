"""Running text with a part taken out, and what is to be written for it: the objectives of T5 and BART.

T5's span corruption (Raffel et al. 2020, arXiv:1910.10683, section 3.1.4 and figure 2; `random_spans_noise_mask` and
`random_spans_helper` of its program): spans of three tokens on average, 15 % of a block, are each replaced by a
sentinel of their own, and what is written are the sentinels with what they stand for. A block is as long as it takes to
be read as `data.block_length` tokens, so that nothing is padding.

BART's noise (Lewis et al. 2020, arXiv:1910.13461, section 2.2): the sentences of a block in another order, then text
infilling of 30 % of its words (`noise.py`); what is written is the block.

What is taken out is a function of (seed, epoch, where the block begins), so that a resumed run sees the same.
Deviations: BART's blocks run over the ends of documents, between which stands its end mark. Not here: reading and
tokenising (`documents`).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from headwise.data.batch import Batch, collate
from headwise.data.batch_planning import Rows
from headwise.data.blocks import fixed_noised_blocks, noised_block_stream
from headwise.data.noise import infill_text
from headwise.data.stream import EndlessStream

SHARE, MEAN_SPAN = 0.15, 3.0  # T5's: of the tokens of a block, tokens a span
STOP = re.compile(r"[.!?…][\"'”\u2019»)\]]*$")  # of a piece behind which a sentence ends, if a blank or nothing follows
FULL_STOP = re.compile(r"[。\uff01\uff1f｡]$|<0x0A>$")  # whatever follows; a line end, as pieces in bytes have it

TokenIds = NDArray[np.int64]
Corruption = Callable[
    [TokenIds, np.random.Generator], tuple[TokenIds, TokenIds]
]  # of a block: what is read, and written


# --- T5's spans


@dataclass(frozen=True)
class SpanCorruption:
    """Spans of a block in the place of sentinels; `sentinels` are their ids, in order."""

    sentinels: TokenIds

    def __call__(self, tokens: TokenIds, generator: np.random.Generator) -> tuple[TokenIds, TokenIds]:
        """What is read of the tokens, and what is written, without marks."""
        noise = noise_mask(len(tokens), generator)
        return replace_spans(tokens, noise, self.sentinels), replace_spans(tokens, ~noise, self.sentinels)


def noise_counts(length: int) -> tuple[int, int]:
    """How many tokens of so many are taken out, and in how many spans.

    >>> noise_counts(568), noise_counts(2)
    ((85, 28), (1, 1))
    """
    tokens = min(max(round(length * SHARE), 1), length - 1)
    return tokens, max(round(tokens / MEAN_SPAN), 1)


def block_length_for(length: int) -> int:
    """The tokens of the longest block that is read as `length` tokens, its sentinels and its end mark among them.

    >>> block_length_for(512)
    568
    """

    def read(n: int) -> int:
        tokens, spans = noise_counts(n)
        return n - tokens + spans + 1

    n = max(2, length - 1)
    while read(n + 1) <= length:
        n += 1
    return n


def noise_mask(length: int, generator: np.random.Generator) -> NDArray[np.bool_]:
    """True where a token is taken out; a block begins with what is kept, and ends with what is not.

    A block of one token is kept.
    """
    longer = max(2, length)
    tokens, spans = noise_counts(longer)
    kept, taken = (split_randomly(n, spans, generator) for n in (longer - tokens, tokens))
    return np.repeat(np.arange(2 * spans) % 2 == 1, np.stack([kept, taken], axis=1).ravel())[:length]


def split_randomly(n: int, n_parts: int, generator: np.random.Generator) -> TokenIds:
    """The lengths of so many parts of n, none of them empty, every division as likely as every other."""
    cuts = np.sort(generator.permutation(n - 1)[: n_parts - 1]) + 1
    return np.diff(np.concatenate([[0], cuts, [n]]))


def replace_spans(tokens: TokenIds, taken: NDArray[np.bool_], sentinels: TokenIds) -> TokenIds:
    """The tokens with the first of the sentinels in the place of the first span that is taken out, and so on.

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
    """Sentences of a block in another order, and words of it behind masks."""

    mask_id: int
    begins: NDArray[np.bool_]  # by id: a word begins with the piece
    stops: NDArray[np.bool_]  # a sentence ends with it if a word begins behind it
    full_stops: NDArray[np.bool_]  # whatever follows

    def __call__(self, tokens: TokenIds, generator: np.random.Generator) -> tuple[TokenIds, TokenIds]:
        """What is read of the tokens, and what is written: the tokens; without marks."""
        sentences = self.sentences(tokens)
        order = generator.permutation(len(sentences))
        permuted = np.concatenate([sentences[i] for i in order])
        return np.array(infill_text(permuted.tolist(), self.begins, self.mask_id, generator), np.int64), tokens

    def sentences(self, tokens: TokenIds) -> list[TokenIds]:
        """The tokens, parted behind every sentence."""
        ends = self.stops[tokens[:-1]] & self.begins[tokens[1:]] | self.full_stops[tokens[:-1]]
        return np.split(tokens, np.flatnonzero(ends) + 1)


def denoising_for(pieces: Iterable[str], mask_id: int, end_id: int) -> Denoising:
    """Of a vocabulary's pieces in the order of their ids, as people read them: blanks as `▁`.

    >>> noise = denoising_for(["<mask>", "</s>", "▁dog", "s", "."], mask_id=0, end_id=1)
    >>> [part.tolist() for part in noise.sentences(np.array([2, 4, 2, 3, 4, 3, 1, 3]))]
    [[2, 4], [2, 3, 4, 3, 1], [3]]
    """
    listed = list(pieces)
    begins, stops, full = (
        np.array([bool(match(piece)) for piece in listed])
        for match in (re.compile("▁").match, STOP.search, FULL_STOP.search)
    )
    begins[end_id] = full[end_id] = True
    return Denoising(mask_id, begins, stops, full)


# --- Batches


@dataclass(frozen=True)
class BlockSpecials:
    """What stands around a block as it is read, and as it is written."""

    before: Sequence[int]
    behind: Sequence[int]  # at least one
    written_before: Sequence[int]
    start_id: int  # what the decoder begins with
    end_id: int  # of what is written
    pad_id: int


@dataclass(frozen=True)
class CorruptedBlocks:
    """Running text in blocks, each with a part taken out."""

    tokens: NDArray[np.int32]
    room: int  # tokens of the text in a block
    corrupt: Corruption
    marks: BlockSpecials

    def load(self, starts: Rows, length: int, seed: int, epoch: int) -> Batch:
        """Blocks of `length` tokens of the text, from each of `starts` on, as they are read in an epoch."""
        pairs = [
            self._pair(int(start), length, np.random.default_rng([seed, epoch, int(start) + 1])) for start in starts
        ]
        marks = self.marks
        return collate(pairs, marks.pad_id, marks.start_id, marks.end_id, index=starts, src_end_id=marks.behind[-1])

    def _pair(self, start: int, length: int, generator: np.random.Generator) -> tuple[list[int], list[int]]:
        read, written = self.corrupt(self.tokens[start : start + length].astype(np.int64), generator)
        marks = self.marks
        return [*marks.before, *read.tolist(), *marks.behind[:-1]], [*marks.written_before, *written.tolist()]

    def stream(
        self, tokens_per_batch: int, seed: int, state: Mapping[str, int] | None = None, pin: bool = False
    ) -> EndlessStream[Batch]:
        """Training batches without end, from `state` on."""
        load = partial(self.load, length=self.room, seed=seed)
        return noised_block_stream(load, len(self.tokens), self.room, tokens_per_batch, seed, state, pin)

    def fixed(self, tokens_per_batch: int) -> Iterator[Batch]:
        """The whole text once, always with the same parts taken out; the last block is as long as it is."""
        return fixed_noised_blocks(self.load, len(self.tokens), self.room, tokens_per_batch)

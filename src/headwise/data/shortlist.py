"""A lexical shortlist: for each source piece the target pieces it is likeliest translated by, learnt from pairs.

Decoding with one computes the logits of a few hundred pieces instead of a whole vocabulary. The probabilities are
those of IBM Model 1 (Brown et al. 1993, https://aclanthology.org/J93-2003, section 4.1): each target piece is
explained by one piece of its source or by an empty word, whichever the others leave most likely, and nothing else
counts, neither order nor neighbours.

Not here: the file (`checkpoint/sidecar_files.py`), and what a search does with it (`decode/candidates.py`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray

from headwise.data.prepared import Column, PreparedCorpus

# Memory, whatever the corpus: some 100 bytes for a cell of a chunk and 80 for an entry of the table, 0.9 GB in all.
CHUNK_CELLS = 1_000_000  # combinations of a source and a target piece looked at together
MAX_ENTRIES = 10_000_000  # combinations that have a probability; beyond them the rarest are forgotten


@dataclass(frozen=True)
class Shortlist:
    """What may be written: the frequent target pieces anyway, the likely ones wherever their source piece occurs."""

    frequent: NDArray[np.int32]  # (m,)
    likely: NDArray[np.int32]  # (vocab, n), the likeliest first, none of the frequent; filled up by a frequent piece


@dataclass(frozen=True)
class Lexicon:
    """t(target | source) for the combinations that occur, in the order of their codes."""

    codes: NDArray[np.int64]  # (entries,), source * vocab + target; the source `vocab` is the empty word
    probability: NDArray[np.float64]  # (entries,)
    vocab: int

    @property
    def source(self) -> NDArray[np.int64]:
        """The source piece of each entry."""
        return self.codes // self.vocab

    @property
    def target(self) -> NDArray[np.int64]:
        """The target piece of each entry."""
        return self.codes % self.vocab


@dataclass(frozen=True)
class Cells:
    """All combinations of a source and a target piece of some pairs, sorted by code: then look-ups are fast."""

    codes: NDArray[np.int64]  # (cells,)
    target: NDArray[np.int64]  # (cells,), which target piece of the chunk a cell belongs to


def estimate_shortlist(
    corpus: PreparedCorpus, vocab_size: int, candidates: int = 50, frequent: int = 200, iterations: int = 4
) -> Shortlist:
    """The `candidates` likeliest target pieces of each source piece, and the `frequent` most frequent of all.

    Args:
        corpus: the training data; memory stays bounded however long it is (see above), time grows with the sum of
            source pieces * target pieces of its pairs.
        vocab_size: of the tokenizer both sides share, or of the larger one.
        candidates: per source piece; at least 1.
        frequent: whatever the source; at least 1.
        iterations: of expectation and maximisation.
    """
    src, tgt = corpus.columns["src"], corpus.columns["tgt"]
    lexicon = _cooccurring(src, tgt, vocab_size)
    for _ in range(iterations):
        lexicon = _reestimate(lexicon, src, tgt)
    anyway = _most_frequent(tgt, vocab_size, frequent)
    return Shortlist(anyway, _likeliest(lexicon, candidates, anyway))


def _cooccurring(src: Column, tgt: Column, vocab: int) -> Lexicon:
    """The combinations to look at, all alike: Model 1 has one optimum, so where it starts does not matter."""
    codes, counts = np.empty(0, np.int64), np.empty(0, np.int64)
    for cells in _chunks(src, tgt, vocab):
        codes, counts = _merge(codes, counts, cells.codes)
        if len(codes) > MAX_ENTRIES:
            kept = np.sort(np.argpartition(counts, -MAX_ENTRIES)[-MAX_ENTRIES:])
            codes, counts = codes[kept], counts[kept]
    return Lexicon(codes, np.ones(len(codes)), vocab)


def _merge(codes: ndarray, counts: ndarray, new: ndarray) -> tuple[ndarray, ndarray]:
    """Sorted codes and how often each occurred, with those of one more chunk."""
    new_codes, new_counts = np.unique(new, return_counts=True)
    merged, place = np.unique(np.concatenate([codes, new_codes]), return_inverse=True)
    weights = np.concatenate([counts, new_counts])
    return merged, np.bincount(place, weights, len(merged)).astype(np.int64)


def _reestimate(lexicon: Lexicon, src: Column, tgt: Column) -> Lexicon:
    """One iteration: share each target piece out among what may explain it, then count the shares."""
    counts = np.zeros(len(lexicon.codes))
    for cells in _chunks(src, tgt, lexicon.vocab):
        entry = np.searchsorted(lexicon.codes, cells.codes).clip(max=len(lexicon.codes) - 1)
        known = lexicon.codes[entry] == cells.codes
        entry, target = entry[known], cells.target[known]
        shares = lexicon.probability[entry]
        shares /= np.bincount(target, shares)[target].clip(min=np.finfo(np.float64).tiny)
        counts += np.bincount(entry, shares, len(counts))
    of_source = np.bincount(lexicon.source, counts)
    probability = counts / of_source[lexicon.source].clip(min=np.finfo(np.float64).tiny)
    return Lexicon(lexicon.codes, probability, lexicon.vocab)


def _chunks(src: Column, tgt: Column, vocab: int) -> Iterator[Cells]:
    """The corpus in runs of pairs of up to CHUNK_CELLS cells, but at least one pair."""
    sizes = (np.diff(src.ends) + 1) * np.diff(tgt.ends)
    chunk = np.cumsum(sizes) // CHUNK_CELLS
    starts = np.flatnonzero(np.diff(chunk, prepend=-1))
    for first, last in zip(starts, [*starts[1:], len(sizes)], strict=True):
        yield _cells(src, tgt, vocab, int(first), int(last))


def _cells(src: Column, tgt: Column, vocab: int, first: int, last: int) -> Cells:
    """The cells of pairs `first` to `last` - 1; every source has the empty word in front."""
    src_ends, tgt_ends = (side.ends[first : last + 1] - side.ends[first] for side in (src, tgt))
    sources = np.insert(src.values[src.ends[first] : src.ends[last]].astype(np.int64), src_ends[:-1], vocab)
    targets = tgt.values[tgt.ends[first] : tgt.ends[last]]
    n_src, n_tgt = np.diff(src_ends) + 1, np.diff(tgt_ends)
    # Every target piece meets every source piece of its pair: runs of n_src cells, one run a target piece.
    run_length = np.repeat(n_src, n_tgt)
    target = np.repeat(np.arange(len(targets)), run_length)
    run_start = np.cumsum(run_length) - run_length
    src_start = np.repeat(np.cumsum(n_src) - n_src, n_tgt)
    within = np.arange(len(target)) - run_start[target]
    codes = sources[src_start[target] + within] * vocab + targets[target]
    order = np.argsort(codes)
    return Cells(codes[order], target[order])


def _most_frequent(tgt: Column, vocab: int, count: int) -> NDArray[np.int32]:
    frequency = np.bincount(tgt.values, minlength=vocab)
    return np.argsort(-frequency, kind="stable")[:count].astype(np.int32)


def _likeliest(lexicon: Lexicon, count: int, anyway: NDArray[np.int32]) -> NDArray[np.int32]:
    """The `count` targets of the highest probability for each source piece, not counting those allowed `anyway`."""
    useful = ~np.isin(lexicon.target, anyway) & (lexicon.source < lexicon.vocab) & (lexicon.probability > 0)
    source, target = lexicon.source[useful], lexicon.target[useful]
    order = np.lexsort((-lexicon.probability[useful], source))
    source, target = source[order], target[order]
    rank = np.arange(len(order)) - np.searchsorted(source, source)
    chosen = rank < count
    likely = np.full((lexicon.vocab, count), anyway[0], np.int32)
    likely[source[chosen], rank[chosen]] = target[chosen]
    return likely

"""The few pieces that a lexical shortlist allows, to be searched instead of a whole vocabulary.

The compiled library searches a batch in *columns*: positions in the list of all pieces any of its sentences may write.
Callers speak of ids, and `native.search` translates. What only the other sentences of a batch may write has no
probability, so a sentence yields the same in any company (batch-invariant). Probabilities are those among a sentence's
own candidates. Torch computes all logits and leaves out what is `barred`: the same, and slower.

Not here: how a shortlist is learnt (`data/shortlist.py`), and the search itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.contract import FREE

BLOCK = 64  # entries that `ranking` looks at together; of 16, 32 and 64 the fastest over 8,000 entries


class CandidateTable:
    """A shortlist ready for use: which pieces may be written for a source."""

    def __init__(self, frequent: NDArray[Any], likely: NDArray[Any], n_written: int = 0) -> None:
        """Ids (m,) and (vocab, n), as `data.shortlist.Shortlist` has them.

        `n_written`: the pieces that can be written, where they are not those that are read; 0 = they are.
        """
        self.frequent = np.asarray(frequent, np.int64)
        self.likely = np.asarray(likely, np.int64)
        self.n_written = n_written

    def candidates(
        self, sources: Sequence[Sequence[int]], prefixes: Sequence[Sequence[int]], special: Sequence[int]
    ) -> "Candidates":
        """What the outputs of a batch may be made of.

        For each sentence the frequent pieces, the likely ones of its source pieces, these themselves, because any
        may be copied (where they can be written), its forced prefix and the `special` ids. Sources come with their end
        marks.
        """
        allowed = self.allowed(sources, prefixes, special)
        used = np.asarray(allowed.any(0))
        # Nobody may write those that fill up the last block, but selection is faster over whole blocks.
        used[np.flatnonzero(~used)[: -int(used.sum()) % BLOCK]] = True
        return Candidates(np.flatnonzero(used), allowed[:, used], allowed.shape[1])

    def allowed(
        self, sources: Sequence[Sequence[int]], prefixes: Sequence[Sequence[int]], special: Sequence[int]
    ) -> NDArray[np.bool_]:
        """The same over the whole vocabulary, (sentences, vocab)."""
        allowed = np.zeros((len(sources), self.n_written or len(self.likely)), np.bool_)
        allowed[:, [*self.frequent, *special]] = True
        for row, source, prefix in zip(allowed, sources, prefixes, strict=True):
            row[self.likely[list(source)]] = True
            row[[*(() if self.n_written else source), *prefix]] = True
        return allowed


@dataclass(frozen=True)
class Candidates:
    """The pieces a batch may write, and which of them each sentence may."""

    ids: NDArray[np.int64]  # (columns,), ascending, so that columns are ordered as ids are
    allowed: NDArray[np.bool_]  # (sentences, columns)
    vocab_size: int = 0

    def barred(self) -> NDArray[np.bool_]:
        """What each sentence may not write, over the whole vocabulary."""
        barred = np.ones((len(self.allowed), self.vocab_size), np.bool_)
        barred[:, self.ids] = ~self.allowed
        return barred

    def columns(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        """Where ids are in the list; FREE for those that are not there."""
        columns = np.searchsorted(self.ids, ids).clip(max=len(self.ids) - 1)
        return np.where(self.ids[columns] == ids, columns, FREE)

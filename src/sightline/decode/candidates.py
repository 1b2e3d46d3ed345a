"""The few pieces that a lexical shortlist allows, to be searched instead of a whole vocabulary.

A batch is searched in *places*: positions in the list of all pieces any of its sentences may write. Model and caller
speak of ids, search and constraints of places, and this module translates between the two. What only the other
sentences of a batch may write has no probability, so a sentence yields the same in any company (batch-invariant).
Probabilities are those among a sentence's own candidates.

Not here: how a shortlist is learnt (`data/shortlist.py`), a model's steps over places (`partial_steps`), and the search
itself, which knows nothing of all this.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sightline.decode.contract import FREE, Hypothesis

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
        allowed = np.zeros((len(sources), self.n_written or len(self.likely)), np.bool_)
        allowed[:, [*self.frequent, *special]] = True
        for row, source, prefix in zip(allowed, sources, prefixes, strict=True):
            row[self.likely[list(source)]] = True
            row[[*(() if self.n_written else source), *prefix]] = True
        used = np.asarray(allowed.any(0))
        # Nobody may write those that fill up the last block, but selection is faster over whole blocks.
        used[np.flatnonzero(~used)[: -int(used.sum()) % BLOCK]] = True
        return Candidates(np.flatnonzero(used), allowed[:, used])


@dataclass(frozen=True)
class Candidates:
    """The pieces a batch may write, and which of them each sentence may."""

    ids: NDArray[np.int64]  # (places,), ascending, so that places are ordered as ids are
    allowed: NDArray[np.bool_]  # (sentences, places)

    def place(self, token: int) -> int:
        """Where an id is in the list; it must be there."""
        return int(self.places(np.array(token)))

    def places(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        """Where ids are, which must be there or FREE."""
        return np.where(ids == FREE, FREE, np.searchsorted(self.ids, ids))

    def with_ids(self, hypothesis: Hypothesis) -> Hypothesis:
        """What a search over places has found, as ids."""
        return replace(hypothesis, tokens=self.ids[hypothesis.tokens].tolist())

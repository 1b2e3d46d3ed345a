"""Search over a lexical shortlist instead of the whole vocabulary.

The compiled library searches a batch in *columns*: indices into the list of all tokens that its sentences may contain;
`runtime.native.search` converts ids. Each sentence is normalised over its own candidates, so its result does not depend
on the batch. Torch computes all logits and masks those that are `barred`: same results, but slower.

Shortlists are trained in `text/prepared/shortlist.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.contract import BLOCK, FREE


class CandidateTable:
    """A shortlist: the tokens that may occur in the translation of a source."""

    def __init__(self, frequent: NDArray[Any], likely: NDArray[Any], n_written: int = 0) -> None:
        """Ids (m,) and (vocab, n) from `text.prepared.shortlist.Shortlist`.

        `n_written`: size of a separate target vocabulary; 0 = shared with the source.
        """
        self.frequent = np.asarray(frequent, np.int64)
        self.likely = np.asarray(likely, np.int64)
        self.n_written = n_written

    def candidates(
        self, sources: Sequence[Sequence[int]], prefixes: Sequence[Sequence[int]], special: Sequence[int]
    ) -> "Candidates":
        """The tokens that the outputs of a batch may contain.

        For each sentence: frequent tokens, likely translations of its source tokens, these tokens themselves (they may
        be copied, unless vocabularies are separate), its forced prefix and the `special` ids. `sources` include their
        end tokens.
        """
        allowed = self.allowed(sources, prefixes, special)
        used = np.asarray(allowed.any(0))
        # Fill up the last block with tokens that no sentence may use: selection is faster over whole blocks.
        used[np.flatnonzero(~used)[: -int(used.sum()) % BLOCK]] = True
        return Candidates(np.flatnonzero(used), allowed[:, used], allowed.shape[1])

    def allowed(
        self, sources: Sequence[Sequence[int]], prefixes: Sequence[Sequence[int]], special: Sequence[int]
    ) -> NDArray[np.bool_]:
        """Mask over the whole vocabulary, (sentences, vocab)."""
        allowed = np.zeros((len(sources), self.n_written or len(self.likely)), np.bool_)
        allowed[:, [*self.frequent, *special]] = True
        for row, source, prefix in zip(allowed, sources, prefixes, strict=True):
            row[self.likely[list(source)]] = True
            row[[*(() if self.n_written else source), *prefix]] = True
        return allowed


@dataclass(frozen=True)
class Candidates:
    """The tokens that a batch may use, and a mask for each sentence."""

    ids: NDArray[np.int64]  # (columns,), ascending
    allowed: NDArray[np.bool_]  # (sentences, columns)
    vocab_size: int = 0

    def barred(self) -> NDArray[np.bool_]:
        """True on tokens that a sentence may not use, over the whole vocabulary."""
        barred = np.ones((len(self.allowed), self.vocab_size), np.bool_)
        barred[:, self.ids] = ~self.allowed
        return barred

    def columns(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        """The columns of ids; FREE for ids that are not candidates."""
        columns = np.searchsorted(self.ids, ids).clip(max=len(self.ids) - 1)
        return np.where(self.ids[columns] == ids, columns, FREE)

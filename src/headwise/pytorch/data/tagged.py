"""Batches of tagged words, such as named entities or parts of speech.

Only the first token of each word is labelled; all other tokens are `IGNORED`, as in the recipe of `transformers`. Files
are in `tagged_texts`, tokenization in `headwise.models.encoding.tag`, training in `headwise.pytorch.tasks.tagging`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from headwise.pytorch.data.labelled import LabelledBatch, LabelledDataset, collate_encoded
from headwise.text.prepared.batch_planning import Rows
from headwise.text.prepared.encoded import EncodedText
from headwise.text.tokens.pair_tokenizer import PairTokenizer

IGNORED = -100  # the label of other tokens, ignored by torch losses


@dataclass(frozen=True)
class TaggedBatch(LabelledBatch):
    """Texts, padded on the right, with the class of each token."""

    labels: Int[Tensor, "batch src_len"]  # `IGNORED` except at the first token of a word
    n_words: int = 0  # labelled words

    @property
    def n_targets(self) -> int:
        return self.n_words


def collate_tagged(
    rows: Sequence[EncodedText], classes: Sequence[Sequence[int]], pad_id: int, typed: bool
) -> TaggedBatch:
    """Build the tensors of a batch; `typed` as for `collate_encoded`.

    >>> rows = [EncodedText([8, 5, 2], 3), EncodedText([8, 2], 2)]
    >>> batch = collate_tagged(rows, [[-100, 1, -100], [-100, -100]], 0, typed=False)
    >>> batch.labels.tolist(), batch.n_targets
    ([[-100, 1, -100], [-100, -100, -100]], 1)
    """
    batch = collate_encoded(rows, [0] * len(rows), pad_id, typed)
    labels = torch.full_like(batch.src, IGNORED)
    labels[batch.src_mask] = torch.from_numpy(np.concatenate([np.asarray(one, np.int64) for one in classes]))
    n_words = int((labels != IGNORED).sum())
    return TaggedBatch(batch.src, batch.src_mask, labels, batch.n_real, batch.types, n_words)


@dataclass(frozen=True)
class TaggedDataset(LabelledDataset):
    """Texts for a pretrained network with the classes of their tokens, in memory."""

    classes: Sequence[Sequence[int]]  # of every token of each text

    def load(self, tokenizer: PairTokenizer, rows: Rows) -> TaggedBatch:
        """The batch of some rows."""
        chosen = rows.tolist()
        return collate_tagged(
            [self.rows[i] for i in chosen], [self.classes[i] for i in chosen], tokenizer.pad_id, self.typed
        )

"""Labelled texts for classifiers, and their batches.

For a network trained here the files (`labelled_texts.py`) are tokenised and cached like parallel text, with labels as
targets. Inputs of a pretrained network are kept in memory (`LabelledDataset`). A text longer than `data.max_length` is
truncated, not dropped. Training is in `pytorch.tasks.classification`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from headwise.core.batches import PaddedBatch, pad
from headwise.text.prepared.batch_planning import Rows, cut_padded, plan_batches
from headwise.text.prepared.encoded import EncodedText, token_types
from headwise.text.prepared.prepared import PreparedCorpus
from headwise.text.tokens.pair_tokenizer import PairTokenizer, Tokens

Example = TypeVar("Example")
HOLD_OUT_SEED = 0


def hold_out_examples(examples: Sequence[Example], count: int) -> tuple[list[Example], list[Example]]:
    """Split off `count` random examples for validation, the same ones every time."""
    taken = set(np.random.default_rng(HOLD_OUT_SEED).permutation(len(examples))[:count].tolist())
    kept = [one for i, one in enumerate(examples) if i not in taken]
    return kept, [examples[i] for i in sorted(taken)]


@dataclass(frozen=True)
class LabelledBatch(PaddedBatch):
    """Texts, padded on the right, and the class of each."""

    src: Int[Tensor, "batch src_len"]
    src_mask: Bool[Tensor, "batch src_len"]  # True on real tokens
    # One for each text, subclasses have more; numbers for regression, and 0 or 1 for each of several labels.
    labels: Int[Tensor, "batch *each"] | Float[Tensor, "batch outputs"]
    n_real: int  # real tokens, with EOS
    types: Int[Tensor, "batch src_len"] | None = None  # token types (segment ids) of a text pair, as in BERT

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The inputs of a network."""
        return (self.src, self.src_mask) if self.types is None else (self.src, self.src_mask, self.types)

    @property
    def n_targets(self) -> int:
        return len(self.labels)

    @property
    def extent(self) -> str:
        rows, src_len = self.src.shape
        return f"{rows} texts, {src_len} tokens long"


def collate_labelled(texts: Sequence[Tokens], labels: Sequence[int], pad_id: int, eos_id: int) -> LabelledBatch:
    """Build the tensors of a batch from token ids without EOS, and classes.

    >>> batch = collate_labelled([[5, 6], [8]], [1, 0], pad_id=0, eos_id=2)
    >>> batch.src.tolist(), batch.labels.tolist(), batch.n_real
    ([[5, 6, 2], [8, 2, 0]], [1, 0], 5)
    """
    src, src_mask = pad(texts, pad_id, last=eos_id)
    labelled = torch.tensor(labels, dtype=torch.int64)
    return LabelledBatch(torch.from_numpy(src), torch.from_numpy(src_mask), labelled, int(src_mask.sum()))


@dataclass(frozen=True)
class LabelledCorpus:
    """A prepared corpus whose target texts are labels."""

    prepared: PreparedCorpus
    labels: tuple[str, ...]  # class i is labels[i]
    max_length: int  # tokens of a text with EOS; longer texts are truncated

    def __len__(self) -> int:
        return len(self.prepared)

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Tokens of every text after truncation, with EOS."""
        return np.minimum(self.prepared.src_lengths, self.max_length)

    def tokens(self, row: int) -> Tokens:
        """Token ids of a text, without EOS."""
        return self.prepared.src(row)[: self.max_length - 1]

    @property
    def classes(self) -> list[int]:
        """The class of every text."""
        return [self.label(row) for row in range(len(self))]

    def label(self, row: int) -> int:
        """The class of a text."""
        return self.labels.index(self.prepared.text(row)[1].strip())

    def load(self, tokenizer: PairTokenizer, rows: Rows) -> LabelledBatch:
        """The batch of some rows."""
        chosen = rows.tolist()
        tokens, labels = [self.tokens(row) for row in chosen], [self.label(row) for row in chosen]
        return collate_labelled(tokens, labels, tokenizer.pad_id, tokenizer.eos_id)

    def plan(self, tokens_per_batch: int, seed: int, epoch: int) -> list[Rows]:
        """The batches of an epoch, as a function of (seed, epoch); epoch 0 starts with the largest."""
        return plan_batches(self.lengths, self.lengths, tokens_per_batch, seed, epoch, largest_first=epoch == 0)


def collate_encoded(rows: Sequence[EncodedText], labels: Sequence[Any], pad_id: int, typed: bool) -> LabelledBatch:
    """Build the tensors of a batch from encoded texts and their classes, one or several for each.

    `typed`: the network takes `token_types`.

    >>> batch = collate_encoded([EncodedText([8, 5, 2, 6, 2], 3), EncodedText([8, 5, 2], 3)], [1, 0], 0, typed=True)
    >>> batch.src.tolist(), batch.types.tolist()
    ([[8, 5, 2, 6, 2], [8, 5, 2, 0, 0]], [[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]])
    """
    src, mask = pad([row.ids for row in rows], pad_id)
    types = None
    if typed:
        types = torch.from_numpy(pad([token_types(row) for row in rows], 0)[0])
    labelled = torch.tensor(labels)  # of whole numbers 64 bits, of others 32
    return LabelledBatch(torch.from_numpy(src), torch.from_numpy(mask), labelled, int(mask.sum()), types)


def encoded_batches(
    rows: Sequence[EncodedText], labels: Sequence[Any], batch_tokens: int, pad_id: int, typed: bool
) -> Iterator[tuple[list[int], LabelledBatch]]:
    """Batches of rows of similar length, each with the indices of its rows; see `collate_encoded`."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    order = np.argsort(lengths, kind="stable")
    for part in cut_padded(order, lengths[order], batch_tokens) if rows else []:
        chosen = part.tolist()
        yield chosen, collate_encoded([rows[i] for i in chosen], [labels[i] for i in chosen], pad_id, typed)


@dataclass(frozen=True)
class LabelledDataset:
    """Labelled texts for a pretrained network, in memory."""

    rows: Sequence[EncodedText]
    classes: Sequence[Any]  # of each text, an index
    labels: tuple[str, ...]  # class i is labels[i]
    typed: bool  # as for `collate_encoded`

    def __len__(self) -> int:
        return len(self.rows)

    def load(self, tokenizer: PairTokenizer, rows: Rows) -> LabelledBatch:
        """The batch of some rows."""
        chosen = rows.tolist()
        return collate_encoded(
            [self.rows[i] for i in chosen], [self.classes[i] for i in chosen], tokenizer.pad_id, self.typed
        )

    def plan(self, tokens_per_batch: int, seed: int, epoch: int) -> list[Rows]:
        """Like `LabelledCorpus.plan`."""
        lengths = np.array([len(row) for row in self.rows])
        return plan_batches(lengths, lengths, tokens_per_batch, seed, epoch, largest_first=epoch == 0)

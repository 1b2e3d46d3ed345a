"""Batches of pairs and triplets of texts for contrastive training of embeddings.

Files are in `contrastive_texts`, training is in `headwise.pytorch.tasks.embedding`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from headwise.core.batches import PaddedBatch, pad
from headwise.pytorch.data.stream import ALL_BATCHES, BatchShare, EndlessStream, batches_of_epochs
from headwise.text.files.contrastive_texts import Texts
from headwise.text.prepared.batch_planning import Rows, plan_batches


@dataclass(frozen=True)
class ContrastiveBatch(PaddedBatch):
    """The anchors of some lines, followed by the positives and the negatives if there are any."""

    src: Int[Tensor, "texts length"]
    src_mask: Bool[Tensor, "texts length"]  # True on real tokens
    same: Bool[Tensor, "lines others"]  # whether a positive or negative equals the positive of a line
    n_real: int

    @property
    def n_targets(self) -> int:
        return len(self.same)

    @property
    def extent(self) -> str:
        return f"{self.n_targets} lines, {len(self.src)} texts of up to {self.src.size(1)} tokens"


@dataclass(frozen=True)
class ContrastiveDataset:
    """Tokenised lines, in memory."""

    lines: Sequence[Texts]
    ids: Sequence[Sequence[Sequence[int]]]  # token ids of each text of each line, with special tokens
    pad_id: int

    def __len__(self) -> int:
        return len(self.lines)

    def load(self, rows: Rows) -> ContrastiveBatch:
        """The batch of some lines."""
        chosen = rows.tolist()
        columns = range(len(self.lines[0]))
        ids = [self.ids[row][column] for column in columns for row in chosen]
        second = [self.lines[row][1] for row in chosen]
        others = [self.lines[row][column] for column in columns[1:] for row in chosen]
        src, mask = pad(ids, self.pad_id)
        same = np.array(second, dtype=object)[:, None] == np.array(others, dtype=object)[None]
        tensors = map(torch.from_numpy, (src, mask, same))
        return ContrastiveBatch(*tensors, n_real=int(mask.sum()))

    def plan(self, seed: int, epoch: int, tokens_per_batch: int) -> list[Rows]:
        """Batches of lines of similar length, as a function of (seed, epoch)."""
        lengths = np.array([max(map(len, line)) for line in self.ids]) * len(self.lines[0])
        return plan_batches(lengths, lengths, tokens_per_batch, seed, epoch, largest_first=epoch == 0)

    def stream(
        self, tokens_per_batch: int, seed: int, state: Mapping[str, int] | None, share: BatchShare = ALL_BATCHES
    ) -> EndlessStream[ContrastiveBatch]:
        """An endless stream of training batches, resumed from `state`."""
        plan = partial(self.plan, seed, tokens_per_batch=tokens_per_batch)
        return EndlessStream(lambda start: batches_of_epochs(plan, self.load, start), state, share)

    def batches(self, tokens_per_batch: int) -> Iterator[ContrastiveBatch]:
        """All lines once, for validation."""
        return map(self.load, self.plan(0, 0, tokens_per_batch))

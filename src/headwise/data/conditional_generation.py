"""What is told of sounds or pictures: batches for a decoder that is given how outputs begin and learns what follows.

Files are read when their batch comes, so memory does not grow with them. Not here: recordings (`speech.py`), pictures
with captions (`captions.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from headwise.data.batch import DeviceBatch
from headwise.data.batch_planning import Rows
from headwise.data.stream import LazyDataset

NOT_PREDICTED = -100  # in `tgt_out`: padding, and what an output is given to begin with
SampleSeed = tuple[
    int, int, int
]  # seed, epoch and number: what is drawn for an input in training hangs on nothing else


@dataclass(frozen=True)
class ConditionalBatch(DeviceBatch):
    """What is heard or seen, and what is to be written, padded on the right."""

    values: Float[Tensor, "batch *any"]  # spectrograms, or pixels
    tgt_in: Int[Tensor, "batch tgt_len"]
    tgt_out: Int[Tensor, "batch tgt_len"]  # NOT_PREDICTED where nothing is learnt
    n_targets: int  # pieces of the texts, end marks included: what the loss is a sum over
    n_real: int  # cells of `tgt_in` that are no padding

    @property
    def n_tokens(self) -> int:
        """The pieces that are predicted: what speed is counted in."""
        return self.n_targets

    @property
    def n_cells(self) -> int:
        """Cells of `tgt_in`."""
        return self.tgt_in.numel()

    @property
    def extent(self) -> str:
        """How large it is, in words."""
        return f"{len(self.values)} recordings or pictures, {self.tgt_in.size(1)} pieces long"


def collate_conditional(
    values: Sequence[Float[Tensor, "*any"]], texts: Sequence[Sequence[int]], beginning: Sequence[int], end: int
) -> ConditionalBatch:
    """Tensors of some inputs and the ids of what is told of them, which come without marks.

    >>> batch = collate_conditional([torch.zeros(2, 4)] * 2, [[5, 6], [7]], beginning=[1, 2], end=3)
    >>> batch.tgt_in.tolist(), batch.tgt_out.tolist()
    ([[1, 2, 5, 6], [1, 2, 7, 3]], [[-100, 5, 6, 3], [-100, 7, 3, -100]])
    """
    read = [torch.tensor([*beginning, *text]) for text in texts]
    written = [torch.tensor([NOT_PREDICTED] * (len(beginning) - 1) + [*text, end]) for text in texts]
    tgt_in = pad_sequence(read, batch_first=True, padding_value=end)
    tgt_out = pad_sequence(written, batch_first=True, padding_value=NOT_PREDICTED)
    return ConditionalBatch(
        torch.stack(list(values)), tgt_in, tgt_out, sum(len(t) + 1 for t in texts), sum(map(len, read))
    )


@dataclass(frozen=True)
class ConditionalDataset(LazyDataset[ConditionalBatch]):
    """Sounds or pictures with ids of what is told of each."""

    tokens: tuple[list[int], ...]  # of each text, without marks
    beginning: tuple[int, ...]  # what every output is given to begin with
    end: int  # the mark behind it

    def __len__(self) -> int:
        return len(self.tokens)

    def values(self, row: int, drawn: SampleSeed | None) -> Float[Tensor, "*any"]:
        """What is heard or seen, read from its file now; `drawn`: changed at random, for training."""
        raise NotImplementedError

    def load(self, rows: Rows, seed: int = 0, epoch: int = -1) -> ConditionalBatch:
        read = [self.values(row, None if epoch < 0 else (seed, epoch, row)) for row in rows.tolist()]
        return collate_conditional(read, [self.tokens[row] for row in rows.tolist()], self.beginning, self.end)

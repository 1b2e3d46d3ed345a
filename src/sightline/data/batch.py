"""Last stage of the pipeline: ids of some pairs to the tensors of one batch.

Section 3.4 and Figure 1 of the paper: the decoder reads the target shifted right, so a target becomes `tgt_in
= start + pieces` and `tgt_out = pieces + end`. Sources carry the end mark too. Which pairs form a batch is
decided in `batching.py`; masks inside the model are made in `model/masks.py`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

Tokens = Sequence[int] | NDArray[np.int32]


@dataclass(frozen=True)
class Batch:
    """Sentence pairs, padded on the right."""

    src: Int[Tensor, "batch src_len"]
    tgt_in: Int[Tensor, "batch tgt_len"]
    tgt_out: Int[Tensor, "batch tgt_len"]
    src_mask: Bool[Tensor, "batch src_len"]  # True on real tokens
    index: Int[Tensor, " batch"]  # which pair of the corpus each row is
    n_source_tokens: int  # real tokens of src, end marks included
    n_target_tokens: int  # real tokens of tgt_out, end marks included

    @property
    def padding_share(self) -> float:
        """The share of padding among all cells of `src` and `tgt_out`."""
        cells = self.src.numel() + self.tgt_out.numel()
        return 1 - (self.n_source_tokens + self.n_target_tokens) / cells

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device; the copy of a pinned one runs beside the computation."""
        return self.each(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> "Batch":
        """The same batch in memory that a CUDA device reads by itself."""
        return self.each(lambda tensor: tensor.pin_memory())

    def each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """The batch with each of its tensors changed."""
        tensors = ("src", "tgt_in", "tgt_out", "src_mask", "index")
        return replace(self, **{name: change(getattr(self, name)) for name in tensors})


def collate(
    pairs: Sequence[tuple[Tokens, Tokens]],
    pad_id: int,
    bos_id: int,
    eos_id: int,
    index: Sequence[int] | NDArray[np.int64] | None = None,
) -> Batch:
    """Tensors of some pairs of ids; the ids come without start and end marks. `index` defaults to 0, 1, 2...

    >>> batch = collate([([5, 6], [7]), ([8], [9, 9])], pad_id=0, bos_id=1, eos_id=2)
    >>> batch.src.tolist(), batch.tgt_in.tolist(), batch.tgt_out.tolist()
    ([[5, 6, 2], [8, 2, 0]], [[1, 7, 0], [1, 9, 9]], [[7, 2, 0], [9, 9, 2]])
    """
    src, src_mask = pad([src for src, _ in pairs], pad_id, last=eos_id)
    tgt_out, tgt_mask = pad([tgt for _, tgt in pairs], pad_id, last=eos_id)
    tgt_in = np.where(tgt_mask, np.roll(tgt_out, 1, axis=1), pad_id)
    tgt_in[:, 0] = bos_id
    rows = np.arange(len(pairs)) if index is None else np.asarray(index, dtype=np.int64)
    tensors = map(torch.from_numpy, (src, tgt_in, tgt_out, src_mask, rows))
    return Batch(*tensors, n_source_tokens=int(src_mask.sum()), n_target_tokens=int(tgt_mask.sum()))


def pad(rows: Sequence[Tokens], pad_id: int, last: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Rows of ids, each with `last` behind it, as one matrix, and where that matrix is real."""
    lengths = np.array([len(row) for row in rows]) + 1
    mask = np.arange(lengths.max()) < lengths[:, None]
    matrix = np.full(mask.shape, pad_id, dtype=np.int64)
    matrix[mask] = np.concatenate([part for row in rows for part in (row, (last,))])
    return matrix, mask
